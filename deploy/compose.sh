#!/bin/sh
# The compose stack with whichever Compose there is: `docker compose` (v2), or docker-compose 1.29.
#
#     deploy/compose.sh up          build, start, return when everything is healthy (or say what is not)
#     deploy/compose.sh down [-v]   stop and remove; -v: with the data
#     deploy/compose.sh ...         anything else goes to Compose as it is: ps, logs -f daemon, exec daemon cursorkeeper ls
#
# COMPOSE_PROJECT_NAME (default: cursorkeeper), COMPOSE_EXTRA (one more Compose file, laid over compose.yaml) and UP_TIMEOUT_S
# (limit of the wait after the start) come from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${COMPOSE_PROJECT_NAME:=cursorkeeper}" "${COMPOSE_EXTRA:=}" "${UP_TIMEOUT_S:=180}"
export COMPOSE_PROJECT_NAME

if docker compose version >/dev/null 2>&1; then
  compose() { docker compose -f "$here/compose.yaml" ${COMPOSE_EXTRA:+-f "$COMPOSE_EXTRA"} "$@"; }
  plugin=yes
elif command -v docker-compose >/dev/null 2>&1; then
  compose() { docker-compose -f "$here/compose.yaml" ${COMPOSE_EXTRA:+-f "$COMPOSE_EXTRA"} "$@"; }
  plugin=no
else
  echo "no Compose: neither \`docker compose\` nor docker-compose is here." >&2
  echo "What to do: install Docker's compose plugin, or on Debian 12: apt-get install docker-compose" >&2
  exit 3
fi

# What is not healthy yet, one line each. A container that has ended with 0 has done what it was there for.
missing() {
  docker inspect -f '{{.Name}} {{.State.Status}} {{.State.ExitCode}} {{if .State.Health}}{{.State.Health.Status}}{{else}}none{{end}}' \
    $(compose ps -q) 2>&1 | awk '
      $2 == "running" && ($4 == "healthy" || $4 == "none") { next }
      $2 == "exited" && $3 == 0 && $4 == "none" { next }
      { sub("^/", "", $1); print $1, $2, $4 }'
}

wait_healthy() {
  began=$(date +%s)
  while left=$(missing) && [ -n "$left" ]; do
    if [ $(($(date +%s) - began)) -ge "$UP_TIMEOUT_S" ]; then
      echo "not healthy after $UP_TIMEOUT_S s:" >&2
      echo "$left" >&2
      echo "What to do: deploy/compose.sh logs NAME; docs/runbook/index.md leads from what you see to its page" >&2
      exit 1
    fi
    sleep 1
  done
}

case "${1:-}" in
  up)
    shift
    if [ "$plugin" = yes ]; then
      compose up --build --detach --wait "$@"
    else
      compose up --build --detach "$@"
    fi
    wait_healthy
    compose ps
    ;;
  *)
    compose "$@"
    ;;
esac
