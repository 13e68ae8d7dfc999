# make demo and make test need nothing else to be set up; see README.md. macOS has GNU make 3.81, which ignores
# .SHELLFLAGS: a recipe's line with several commands stops at a failure by itself.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export SAM_CLI_TELEMETRY := 0
# Without bytecode, each of the many processes of the tests and the demo compiles all of its modules.
unexport PYTHONDONTWRITEBYTECODE
SAM := .tools/sam/bin/sam
CODE := layers/common functions gpucost_cli gpucost_devstack authoring benchmarks lint scripts tests

.PHONY: help setup web screenshots demo unit test nightly check fix faults chaos compat contract mutate build deploy dist release notices lock openapi dashboards reference docs bench clean

help: ## show this
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install what development needs
	@scripts/setup.sh test

web: ## build the dashboard page
	@scripts/setup.sh page

screenshots: ## pictures of every view of the page, in screenshots/
	@scripts/setup.sh test
	$(BIN)/python -m tests.browser.screenshots

demo: ## the whole system on this machine, on three days of a simulated cluster (PORT=8081)
	@scripts/setup.sh demo
	@$(BIN)/gpucost demo $(if $(PORT),--port $(PORT))

check: setup ## everything static, side by side (ONLY="ruff types" for some)
	@$(BIN)/python -m scripts.check $(ONLY)

fix: setup ## correct what a machine can: imports, format, generated files
	$(BIN)/ruff check --fix-only -q $(CODE)
	$(BIN)/ruff format -q $(CODE)
	@$(MAKE) --no-print-directory openapi dashboards reference
	npm --prefix web run --silent format

unit: ## the tests that need only Python packages, 80 seconds
	@scripts/setup.sh unit
	$(BIN)/python -m pytest --ring unit -n 3 --dist loadfile

test: check ## everything that CI runs
	npm --prefix web run --silent test
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

compat: ## the system scenarios on Prometheus 2 and 3 and VictoriaMetrics, half an hour (ONLY=victoria for one)
	@scripts/setup.sh test
	@$(BIN)/python scripts/compat.py $(ONLY)

nightly: ## all that takes too long for every change; hours (ONLY="marked chaos" for some parts)
	@scripts/setup.sh test
	@scripts/setup.sh mutate
	$(BIN)/python -m scripts.nightly $(ONLY)

bench: ## one report of all benchmarks, as ratios to floors measured in the same run (MORE="--quick --json FILE")
	@scripts/setup.sh test
	$(BIN)/python -m benchmarks $(MORE)

faults: ## plant faults in the metering, one for each processor at a time; each must be caught
	@scripts/setup.sh demo
	$(BIN)/python -m tests.faults

chaos: ## kill the pipeline at every outside call of a day, and try the fault table
	@scripts/setup.sh test
	$(BIN)/python -m tests.chaos

contract: ## some 20,000 requests made up from the OpenAPI document, on a month of data
	@scripts/setup.sh test
	$(BIN)/python -m tests.contract

mutate: ## mutation testing of the metering core; prints the score
	@scripts/setup.sh mutate
	$(BIN)/python -m tests.mutation

build: ## build for AWS
	@scripts/setup.sh build
	$(SAM) build

deploy: ## deploy to AWS; asks four questions the first time (ENV=prod, MORE="--region REGION --yes")
	@scripts/setup.sh build
	@$(BIN)/python -m gpucost_cli.samconfig --environment $(or $(ENV),dev) $(MORE)
	@$(MAKE) --no-print-directory build
	$(SAM) deploy --config-env $(or $(ENV),dev)
	@echo "now push settings: $(BIN)/gpucost settings push settings.yaml --stack NAME"

dist: ## build the wheel and the source archive, in dist/
	@scripts/setup.sh build
	$(BIN)/python -m hatchling build -d dist

release: ## check and write what a release contains, in dist/ (VERSION=0.1.0)
	@[ -n "$(VERSION)" ] || { echo "VERSION is required, for example: make release VERSION=0.1.0" >&2; exit 1; }
	@scripts/setup.sh release
	$(BIN)/python -m scripts.release check $(VERSION)
	rm -rf .aws-sam dist
	$(MAKE) dist build
	$(BIN)/python -m scripts.release package $(VERSION)

notices: ## write THIRD_PARTY_NOTICES: the licenses of what the layers and the page bundle
	@scripts/setup.sh release
	$(BIN)/python -m scripts.notices

lock: ## renew the locks
	scripts/lock_web.sh
	cd requirements && for name in dev mutate sam checkov forecast release; do \
	  uv pip compile -q --universal --generate-hashes --no-header --python-version 3.11 --upgrade $$name.in -o $$name.txt \
	  || exit 1; done
	for layer in deps duckdb; do cd $(CURDIR)/layers/$$layer && uv pip compile -q --generate-hashes --no-header --upgrade \
	  --python-version 3.13 --python-platform aarch64-manylinux_2_28 requirements.in -o requirements.txt \
	  || exit 1; done

openapi: ## write docs/reference/openapi.json, from which the page's types of the API are made
	$(BIN)/python -m authoring.openapi
	@scripts/setup.sh page

dashboards: ## write dashboards/: Grafana's, and the quick start's recording rules
	$(BIN)/python -m authoring.grafana

reference: ## write the generated pages of docs/reference/, the settings' JSON Schema, and what derives from amounts
	$(BIN)/python -m authoring.amounts
	$(BIN)/python -m authoring.reference

docs: setup ## build the documentation site in build/site
	$(BIN)/python -m authoring.site
	@echo "built build/site; to read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

clean: ## remove what was built and installed here
	rm -rf .venv .tools .aws-sam .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  gpucost_devstack/dynamodb/node_modules authoring/bytecode/node_modules gpucost_devstack/iam/node_modules lint/workflows/node_modules web/node_modules \
	  functions/api/page build dist .cache *.egg-info
	find . -type d -name __pycache__ -prune -exec rm -rf {} +
