# What people and CI run. Set-up is a virtual environment, redone only when a lock changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The lock comes from the public index alone, whatever this machine's pip is configured to add to it.
COMPILE := env -u PIP_EXTRA_INDEX_URL -u PIP_FIND_LINKS PIP_CONFIG_FILE=/dev/null CUSTOM_COMPILE_COMMAND="make lock" \
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: help run demo test lint format e2e-clients bench proof accuracy tools dashboards audit sbom lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## start the proxy with ./config.yaml; ARGS="--port 8080" adds options
	$(BIN)/lastcall serve $(ARGS)

demo: $(VENV)/run.stamp ## the same agent with and without Lastcall; no key, no network
	$(BIN)/lastcall demo $(ARGS)

test: lint ## every check that CI runs
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal --cov --core-coverage $(ARGS)

lint: $(VENV)/dev.stamp ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/dev.stamp ## lay the code out and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

e2e-clients: $(VENV)/dev.stamp ## coding agents from npm against the proxy, in a loop and at work; needs Node 20
	mkdir -p .clients && cp tests/clients/package.json .clients
	npm install --prefix .clients --no-audit --no-fund --loglevel=error
	LASTCALL_CLIENTS=$(CURDIR)/.clients $(BIN)/python -m pytest tests/e2e/test_coding_clis.py $(ARGS)

bench: $(VENV)/dev.stamp ## what a request costs, next to a bare passthrough
	$(BIN)/python -m bench $(ARGS)

proof: $(VENV)/dev.stamp ## load, faults and half an hour of work: docs/proof.md; some 40 minutes
	$(BIN)/python -m bench.streams
	$(BIN)/python -m tests.faults
	$(BIN)/python -m bench.soak $(ARGS)

RUNS ?= ../shared/corpus
accuracy: $(VENV)/run.stamp ## how often Lastcall is right on a folder of recorded runs, RUNS=…
	$(BIN)/python -m bench.accuracy $(RUNS) $(ARGS)

dashboards: $(VENV)/dev.stamp ## real work, a real Prometheus, a picture of every dashboard; some minutes
	$(BIN)/python -m tests.platform.pictures $(ARGS)

tools: build/tools/helm.stamp ## Helm 3 and 4, for the tests of the chart

build/tools/helm.stamp: .ci/get_helm.py .ci/helm.txt | $(BIN)/python
	$(BIN)/python .ci/get_helm.py build/tools
	touch $@

audit: build/tools/audit.stamp ## known vulnerabilities of what is locked; needs the network
	build/tools/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
		-r requirements.txt -r requirements-dev.txt $(ARGS) || { echo "Either vulnerabilities were found, or the database could not be asked" \
		"(needs https://pypi.org; another one: ARGS='--vulnerability-service osv'): the lines above say which." >&2; exit 1; }

build/tools/audit.stamp: .ci/audit.txt | $(BIN)/python
	$(BIN)/python -m venv build/tools/audit
	build/tools/audit/bin/python -m pip --disable-pip-version-check install --quiet --requirement .ci/audit.txt
	touch $@

sbom: | $(BIN)/python ## build/sbom.json: what runs, as a CycloneDX bill of materials
	mkdir -p build
	$(BIN)/python .ci/sbom.py requirements.txt > build/sbom.json

lock: $(VENV)/dev.stamp ## resolve requirements*.txt again; ARGS=--upgrade takes newer releases
	$(COMPILE) --extra demo --build-deps-for editable --output-file requirements.txt $(ARGS) pyproject.toml
	$(COMPILE) --output-file requirements-dev.txt $(ARGS) requirements-dev.in

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment that was not finished goes: the next run would take it for one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is not Python 3.11 or newer; name one that is, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "$(PYTHON) cannot make an environment; on Debian: apt install python3-venv" >&2; exit 1; }

$(VENV)/run.stamp: requirements.txt pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/dev.stamp: requirements-dev.txt $(VENV)/run.stamp
	$(PIP) install --quiet --require-hashes -r requirements-dev.txt
	touch $@
