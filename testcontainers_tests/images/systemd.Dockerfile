# A machine with systemd, the daemon and the gateway, where the units of deploy/systemd are tried. A test image.
#
# DAEMON_IMAGE and GATEWAY_IMAGE: the images under test; what is installed here is theirs.
ARG BASE_IMAGE=debian:bookworm-slim
ARG DAEMON_IMAGE
ARG GATEWAY_IMAGE
FROM ${DAEMON_IMAGE} AS daemon
FROM ${GATEWAY_IMAGE} AS gateway
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends systemd python3 \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=daemon /opt/cursorkeeper /opt/cursorkeeper
COPY --from=gateway /opt /opt
RUN ln -s /opt/java/bin/java /usr/bin/java
COPY boot-systemd.sh /boot-systemd.sh
# So systemd knows that it is not the machine's.
ENV container=docker
STOPSIGNAL SIGRTMIN+3
CMD ["sh", "/boot-systemd.sh"]
