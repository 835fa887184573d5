# What faults need inside a node's network: iptables, and a Python for the TCP proxy. A test image; nothing of it is deployed.
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iptables python3-minimal libpython3-stdlib \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY proxy.py /toolbox/proxy.py
CMD ["sleep", "infinity"]
