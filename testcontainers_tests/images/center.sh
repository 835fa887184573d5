# center.sh REALM PORT KEYTAB=PRINCIPAL,PRINCIPAL... - serves a realm, which its first start makes, with these principals and their keytabs in
# /var/lib/krb5kdc/keytabs. It says so in a line of JSON.
set -euo pipefail
realm=$1 port=$2 kept=/var/lib/krb5kdc
shift 2
export KRB5_KDC_PROFILE=/tmp/kdc.conf KRB5_CONFIG=/etc/krb5.conf
cat > "$KRB5_KDC_PROFILE" <<CONF
[kdcdefaults]
kdc_listen = $port
kdc_tcp_listen = $port
[realms]
$realm = {
  database_name = $kept/principals
  key_stash_file = $kept/stash
  acl_file = $kept/none.acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
}
CONF
if [ ! -d "$kept/keytabs" ]; then
  kdb5_util create -s -W -r "$realm" -P master >/dev/null
  mkdir "$kept/keytabs"
  for keytab in "$@"; do
    for principal in $(tr , ' ' <<< "${keytab#*=}"); do
      kadmin.local -r "$realm" addprinc -randkey "$principal" >/dev/null 2>&1 || true
      kadmin.local -r "$realm" ktadd -norandkey -k "$kept/keytabs/${keytab%%=*}" "$principal" >/dev/null
    done
  done
fi
krb5kdc -n -r "$realm" -P /tmp/pid &
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  kill -0 $! || exit 1
  sleep 0.05
done
echo '{"ready": true}'
wait $!
