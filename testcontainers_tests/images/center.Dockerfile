# A key distribution center (Kerberos) of one realm, which is made anew at every start. A test image; nothing of it is deployed.
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends krb5-kdc krb5-admin-server \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY center.sh /center.sh
ENTRYPOINT ["bash", "/center.sh"]
