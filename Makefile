# Two commands do everything on a fresh machine with Python 3.11+, a JDK 17+, Maven and make:
#   make demo    the main job on the embedded stack      make test    all tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DISTRIBUTIONS := clients daemon pipeline
JAR    := java/gateway/target/cursorkeeper-gateway.jar
PYTEST := $(BIN)/pytest
JAVA_SOURCES := java/pom.xml $(shell find java/gateway java/reader java/keeper-client -name '*.java' -o -name 'pom.xml' -o -name '*.xml' -path '*/resources/*' 2>/dev/null) proto/ledgers.proto proto/acks.proto
INTEROP := .build/interop
BROKERS := .build/brokers/.resolved
DEMO_BROKER := .build/brokers/4.2.4.classpath
INTEROP_SOURCES := $(shell find java/interop -name target -prune -o -type f \( -name '*.java' -o -name 'pom.xml' -o -name '*.properties' \) -print 2>/dev/null)
PLUGIN := java/pulsar-plugin/pulsar-4.2/target/cursorkeeper-pulsar-plugin-4.2.jar
PLUGIN_SOURCES := $(shell find java/pulsar-plugin java/pulsar-receipts java/keeper-client -name target -prune -o -type f \( -name '*.java' -o -name 'pom.xml' -o -name '*.txt' -o -name '*.yml' \) -print 2>/dev/null) proto/acks.proto

WORKERS ?= 2

VERSION  = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' daemon/pyproject.toml)
REVISION = $(shell git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)
IMAGE    = docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) $(if $(BASE_DIGEST),--build-arg BASE_DIGEST=@$(BASE_DIGEST)) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION)

.PHONY: help setup compiled jar dist audit image-sboms interop-classes broker-classes plugin-jar test-plugin demo demo-pulsar test test-pipeline test-containers test-brokers test-fast test-interpreted test-java checked checked-python checked-java format-java check docs mutants bench bench-quick bench-all images up down clean

help:
	@sed -n 's/^#/ /p' Makefile | head -3
	@echo '  make test-fast (no JVM, under a minute), make test-containers (Docker), make test-pipeline (PySpark), make check (ruff, mypy, imports, docs),'
	@echo '  make bench, make bench-quick, make dist (wheels, sdists and jars with their bills of materials), make audit, make docs (the site), make clean'
	@echo '  make images (with Docker), make up and make down (the whole system in containers: docs/run/containers.md)'

$(VENV)/.installed: requirements-dev.lock $(addsuffix /pyproject.toml,$(DISTRIBUTIONS))
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python tools/build_protos.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(addprefix --editable ./,$(DISTRIBUTIONS))
	@touch $@

# PySpark is half a gigabyte: for those who work on the pipeline, and for all tests.
$(VENV)/.spark: requirements-spark.lock $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $@

# For the pipeline's suite, whose JVMs load the same classes again and again.
SPARK_CLASSES := .build/spark-classes.jsa
$(SPARK_CLASSES): $(VENV)/.spark pipeline/tests/spark_jvm.py
	@mkdir -p .build
	$(BIN)/python pipeline/tests/spark_jvm.py $@.new
	@mv $@.new $@

.build/protos: proto/acks.proto proto/ledgers.proto tools/build_protos.py | $(VENV)/.installed
	@mkdir -p .build
	$(BIN)/python tools/build_protos.py
	@touch $@

setup: $(VENV)/.installed .build/protos

# Maven runs its own tests under `make test`; a demo should not wait for them.
$(JAR): $(JAVA_SOURCES)
	@command -v mvn >/dev/null || { echo 'Maven is needed to build the gateway: apt-get install maven (or your system'"'"'s way)'; exit 1; }
	mvn -q -B -f java/pom.xml -DskipTests package
	@touch $@

jar: $(JAR)

# What each message of acks passes as machine code, about twice as fast; where there is no C compiler that is said, and they run as they are. What was
# made is used for exactly this source (daemon/cursorkeeper/compiled.py), so a changed file runs as it is until this has run again.
compiled: setup
	$(BIN)/python tools/compile_core.py

# What a release gives out, with a bill of materials (CycloneDX) of each file, and SHA256SUMS of them all. The same sources make the same
# bytes; SOURCE_DATE_EPOCH, if set, is the date in them.
dist: setup $(VENV)/.release $(JAR) plugin-jar
	rm -f dist/cursorkeeper* dist/SHA256SUMS
	for folder in $(DISTRIBUTIONS); do (cd $$folder && ../$(BIN)/python -m hatchling build -d ../dist) || exit 1; done
	$(BIN)/python -m tools.supply_chain.bills dist
	@ls -l dist

# What Maven resolves for our jars.
RESOLVED := java/gateway/target/sbom.json
$(RESOLVED): java/pom.xml java/gateway/pom.xml java/keeper-client/pom.xml | $(VENV)/.release
	$(BIN)/python -c 'from tools.supply_chain.java_bill import resolve; resolve()'

# What is known against the libraries that the locks and the jars' bills name. Exit code 1: something is; 3: a source could not be asked.
# OSV_URL: another address of OSV's API, as a mirror's.
audit: $(VENV)/.release $(RESOLVED)
	$(BIN)/python -m tools.supply_chain.audit $(if $(OSV_URL),--osv-url $(OSV_URL))

# Pulsar's own classes, for the tests that compare with them; jar and demo do without.
$(INTEROP): $(INTEROP_SOURCES)
	mvn -q -B -f java/interop/pom.xml process-classes
	@mkdir -p .build && touch $@

interop-classes: $(INTEROP)

# Whole Pulsar brokers: what demos and tests on real brokers put on a class path, from Maven's own folder.
$(BROKERS): $(wildcard java/brokers/pom.xml java/brokers/*/pom.xml)
	mvn -q -B -f java/brokers/pom.xml process-classes
	@touch $@

broker-classes: $(BROKERS)

# Of the one version that the demo plays by itself: 240 MB instead of 700.
$(DEMO_BROKER): java/brokers/pom.xml java/brokers/pulsar-4.2/pom.xml
	mvn -q -B -f java/brokers/pom.xml -pl pulsar-4.2 process-classes
	@touch $@

# The plugin for Pulsar's brokers, and its tests' classes. Its Java tests run under `make test`.
$(PLUGIN): $(PLUGIN_SOURCES)
	mvn -q -B -f java/pulsar-plugin/pom.xml -DskipTests package
	@touch $@

plugin-jar: $(PLUGIN)

test-plugin:
	mvn -q -B -Pchecked -f java/pulsar-plugin/pom.xml -Dtest='org.apache.bookkeeper.mledger.impl.*Test,io.cursorkeeper.pulsar.**.*Test' -Dsurefire.failIfNoSpecifiedTests=false package

demo: compiled $(JAR)
	$(BIN)/cursorkeeper demo
	$(BIN)/cursorkeeper demo --trace testdata/pulsar-trace

# Real brokers, killed right after the last receipt of an ack. ARGS=--json: one JSON line at the end.
demo-pulsar: compiled $(JAR) $(DEMO_BROKER) plugin-jar
	$(BIN)/python -m tools.brokers $(ARGS)

# The site for users, in .build/site: nothing on it is loaded from elsewhere, and a link or an anchor that leads nowhere is an error.
$(VENV)/.docs: requirements-docs.lock $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'the site is in .build/site: $(BIN)/python -m http.server -b 127.0.0.1 -d .build/site'

# What a release is told of. pip-audit brings pip along, so pip is what the lock says from here on.
$(VENV)/.release: requirements-release.lock $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-release.lock
	@touch $@

check: setup $(VENV)/.spark $(VENV)/.release docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

test-fast: setup
	$(PYTEST) -m 'not jvm and not slow'

# What reaches into parts of the source, where everything else tests what was compiled.
test-interpreted: setup
	CURSORKEEPER_COMPILED=no $(PYTEST) -n $(WORKERS) -m interpreted daemon/tests

test-java:
	mvn -q -B -Pchecked -f java/pom.xml verify

# The layout of all Java, written; `make test-java` checks it.
format-java:
	mvn -q -B -N -f java/pom.xml spotless:apply

test: checked $(SPARK_CLASSES)
	@touch $(JAR) $(PLUGIN)
	$(BIN)/python -m tools.class_archive
	$(SIDE_BY_SIDE)
	$(ONE_WITH_SPARK)

# Python's and Java's own checks beside each other: each of them is one process for most of its time.
checked: setup $(VENV)/.spark $(VENV)/.release $(RESOLVED)
	$(MAKE) -j2 --output-sync=target checked-python checked-java

checked-python:
	$(MAKE) -j1 check
	$(BIN)/python tools/compile_core.py --fail-on failure
	$(MAKE) -j1 test-interpreted

checked-java:
	$(MAKE) -j1 test-java interop-classes broker-classes test-plugin

# Each worker has a stack (and, for the pipeline, a Spark session) of its own; a module's tests stay together, so that what they share is
# started once. Files are handed out in their order (conftest.py): by itself, xdist begins with those of the most tests.
# One worker more than cores: tests of daemons wait for disks, sessions and processes that start.
SIDE_BY_SIDE = $(PYTEST) -n $(shell expr $(WORKERS) + 1) --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# Of the pipeline's, one worker has all that needs Spark: one session for all of them (pipeline/tests/workers.py).
ONE_WITH_SPARK = $(PYTEST) -n $(WORKERS) --max-worker-restart 1 pipeline/tests
test-pipeline: setup $(VENV)/.spark $(JAR) $(SPARK_CLASSES)
	$(ONE_WITH_SPARK)

# A Docker that answers, and nothing else; the suite says what to do if there is none. Stories wait more than they work (for sessions
# to expire, for disks, for containers), so two of them share a machine well: each has a system of its own.
test-containers: setup $(JAR) broker-classes plugin-jar
	$(PYTEST) -n $(WORKERS) --max-worker-restart 1 testcontainers_tests

# Stories on whole Pulsar brokers that take too long for `make test`. Of an earlier version, which brokers then have beside this one:
# OLDER_PLUGIN_JAR=… is the plugin's jar, OLDER_DAEMON=… the command `cursorkeeper`.
test-brokers: setup $(JAR) broker-classes plugin-jar
	$(PYTEST) -n $(WORKERS) --dist loadfile $(wildcard daemon/tests/pulsar_plugin/long_*.py)

# Which rules of core and runtime could go without a test noticing. All of them take hours: SAMPLE=200 takes so many by chance,
# ONLY=rolling those of one module, EACH=20 so many of each.
mutants: setup
	$(BIN)/python -m tools.mutants --workers $(WORKERS) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(EACH),--each $(EACH)) $(if $(ONLY),--only $(ONLY)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOURNAL),--journal $(JOURNAL))

# What CursorKeeper costs beside its baselines: results and plots in bench/results, in ten minutes or in two.
bench: compiled $(JAR)
	$(BIN)/python -m bench.suite

bench-quick: compiled $(JAR)
	$(BIN)/python -m bench.suite --quick

# Every benchmark there is, for hours, with brokers and Spark.
bench-all: compiled $(VENV)/.spark $(JAR) broker-classes plugin-jar
	$(BIN)/python -m bench

# Jars are copied into images, so they are made here; everything else is made in them.
images: $(JAR) plugin-jar
	$(IMAGE) -t cursorkeeper:$(VERSION) .
	$(IMAGE) -t cursorkeeper-gateway:$(VERSION) -f java/Dockerfile --target gateway .
	$(IMAGE) -t cursorkeeper-node:$(VERSION) -f java/Dockerfile --target node .
	$(IMAGE) -t cursorkeeper-pulsar-plugin:$(VERSION) -f java/pulsar-plugin/Dockerfile .

# The images' own bills of materials, beside those of `make dist`.
image-sboms: $(VENV)/.release
	$(BIN)/python -m tools.supply_chain.image_bill dist $(VERSION)

up: $(JAR)
	CURSORKEEPER_VERSION=$(VERSION) CURSORKEEPER_REVISION=$(REVISION) deploy/compose.sh up

# VOLUMES=yes: the data goes, too.
down:
	CURSORKEEPER_VERSION=$(VERSION) deploy/compose.sh down $(if $(VOLUMES),--volumes)

clean:
	rm -rf $(VENV) .build dist daemon/cursorkeeper/_compiled java/*/target java/interop/*/target java/pulsar-plugin/*/target .mypy_cache .ruff_cache .pytest_cache
	rm -f clients/*/_proto/*_pb2* daemon/cursorkeeper/*/_proto/*_pb2*
