# The daemon's image. Built from the repository's root:
#
#     docker build -t cursorkeeper:0.2.0 .
#
# Owns: an image that holds Python, the libraries of requirements.lock (every one checked against its hash) and the daemon,
# and nothing else: no compiler, no pip, no gateway jar. It runs as user 10001, writes nothing to its root file system, and
# starts no shell. Only what the classic builder understands is used, so that every builder can build it.
#
# BASE_IMAGE: any Debian 12 or later; both stages use the same, so that the interpreter's path is the same. BASE_DIGEST: @sha256:... pins its
# bytes, as a release does (docs/run/supply-chain.md); without it the tag is whatever is there, with or without a registry.
ARG BASE_IMAGE=debian:bookworm-slim
ARG BASE_DIGEST=

FROM ${BASE_IMAGE}${BASE_DIGEST} AS build
# Debian's standard bundle; named for tools that bring certificates of their own.
ENV DEBIAN_FRONTEND=noninteractive \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
RUN apt-get update -q \
 && apt-get install -y -q --no-install-recommends binutils ca-certificates gcc libc6-dev python3 python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
# The build has all libraries, too, because what is compiled is checked against their types.
# Libraries' own tests and stubs, and the debugging symbols of compiled ones, are of no use to a daemon (a quarter of the size).
RUN python3 -m venv /opt/cursorkeeper \
 && /opt/cursorkeeper/bin/pip install --quiet --require-hashes -r requirements.lock \
 && python3 -m venv /opt/build \
 && cp -a /opt/cursorkeeper/lib/. /opt/build/lib/ \
 && /opt/build/bin/pip install --quiet --require-hashes -r requirements-build.lock \
 && find /opt/cursorkeeper/lib -type d -name tests -prune -exec rm -rf {} + \
 && find /opt/cursorkeeper/lib -name '*.pyi' -delete \
 && find /opt/cursorkeeper/lib -name '*.so' -not -path '*/numpy*' -exec strip --strip-debug {} +
COPY tools/*.py tools/
COPY proto proto
COPY clients clients
COPY daemon daemon
# What acks pass becomes machine code. The jar is the gateway's image's. pip goes when it has done its work, and so does whatever
# else would only be a way in. Byte code is compiled here, because nothing can be written where it runs.
RUN CURSORKEEPER_WHEEL_JAR=no CURSORKEEPER_WHEEL_COMPILED=yes /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheel ./clients ./daemon \
 && /opt/cursorkeeper/bin/pip install --quiet --no-deps --no-index /wheel/*.whl \
 && /opt/cursorkeeper/bin/pip uninstall --quiet --yes pip setuptools \
 && find /opt/cursorkeeper/bin -mindepth 1 -not -name 'python*' -not -name cursorkeeper -delete \
 && rm -rf /opt/cursorkeeper/include /opt/cursorkeeper/share \
 && python3 -m compileall -q /opt/cursorkeeper/lib

FROM ${BASE_IMAGE}${BASE_DIGEST}
# Programs that run as root whoever starts them (su, mount) are of use to an intruder only. The list of packages is for the image's bill of
# materials (tools/supply_chain/image_bill.py).
RUN apt-get update -q \
 && apt-get install -y -q --no-install-recommends python3 \
 && apt-get clean \
 && useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin cursorkeeper \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && rm -rf /var/lib/apt/lists/* /var/log/* /etc/*- \
 && mkdir /usr/share/cursorkeeper \
 && { . /etc/os-release && echo "# $ID $VERSION_ID"; dpkg-query -W -f='${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n' ; } > /usr/share/cursorkeeper/debian-packages.tsv
COPY --from=build /opt/cursorkeeper /opt/cursorkeeper
# Settings of an image, not of the software: reachable from outside the container, and patient with neighbours that start later.
ENV PATH=/opt/cursorkeeper/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    CURSORKEEPER_LISTEN=0.0.0.0:7650 \
    CURSORKEEPER_METRICS_LISTEN=0.0.0.0:7652 \
    CURSORKEEPER_START_TIMEOUT_S=120
USER 10001:10001
WORKDIR /
EXPOSE 7650 7652
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["/opt/cursorkeeper/bin/cursorkeeper", "health"]
ENTRYPOINT ["/opt/cursorkeeper/bin/cursorkeeper"]
CMD ["run"]
# Last, so that another version or revision rebuilds nothing.
ARG VERSION=unknown
ARG REVISION=unknown
ARG BASE_IMAGE
ARG BASE_DIGEST
LABEL org.opencontainers.image.title="cursorkeeper" \
      org.opencontainers.image.description="CursorKeeper's daemon: durable acknowledgement state of Apache Pulsar subscriptions" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}${BASE_DIGEST}"
