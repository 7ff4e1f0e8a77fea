# Every target makes its own virtual environment; stamps keep repeats fast.
#   make demo                      a study of a small simulated source
#   make demo SOURCE=/my/mimiciv   a study of real files
#   make server, deploy, worker    deployments, see docs/operating.md
#   make test                      all tests
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Named first, so that the project's own range does not choose another build of it.
TORCH ?= torch==2.13.0
VENV ?= .venv
SOURCE ?= simulated
RUN ?= demo/run
# Exported as given rather than pasted into a recipe: quotes, spaces and dollars in a path arrive unchanged.
override SOURCE := $(value SOURCE)
override RUN := $(value RUN)
# The protected directory of runs, state and the orchestrator's home; the pool of `make worker`; the server's port.
DATA_ROOT ?= demo
POOL ?= icu-cpu
PORT ?= 4200
override DATA_ROOT := $(value DATA_ROOT)
export SOURCE RUN DATA_ROOT

BIN := $(VENV)/bin
ROOMS := cohort_sql memory evaluation reports flows
COMPILED := setup.py $(wildcard memory/svdd/core/*)
RUNTIME := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.installed-dev

.PHONY: help demo server deploy worker test quick-test lint types contracts sql check evidence picture bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit("error: Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet '$(TORCH)'

$(RUNTIME): pyproject.toml $(COMPILED) | $(BIN)/python
	@echo "Installing into $(VENV): a few minutes the first time" >&2
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(DEVELOPMENT): pyproject.toml $(COMPILED) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,dask]'
	@touch $@ $(RUNTIME)

demo: $(RUNTIME) ## run a study (SOURCE=DIR for real files) and print the report's path
	@ICU_MEMORY_STATE="$${ICU_MEMORY_STATE:-$$(dirname -- "$$RUN")/state}" $(BIN)/icu-memory study "$$SOURCE" --out "$$RUN"
	@echo "Next: open the report above in a browser, or read README.md for real files." >&2

server: $(RUNTIME) ## start the orchestrator's server on this machine (DATA_ROOT=DIR PORT=4200)
	@$(BIN)/python -m flows.orchestrator server --data-root "$$DATA_ROOT" --port $(PORT)

deploy: $(RUNTIME) ## make the work pools and register the deployments with a running server
	@$(BIN)/python -m flows.orchestrator deploy --data-root "$$DATA_ROOT" --port $(PORT)

worker: $(RUNTIME) ## start a worker (POOL=icu-cpu or icu-gpu)
	@$(BIN)/python -m flows.orchestrator worker --data-root "$$DATA_ROOT" --pool $(POOL) --port $(PORT)

test: $(DEVELOPMENT) ## run all tests
	$(BIN)/python -m pytest

quick-test: $(DEVELOPMENT) ## run the tests that start no server and no browser
	$(BIN)/python -m pytest -m "not integration"

lint: $(DEVELOPMENT) ## ruff
	$(BIN)/ruff check .

types: $(DEVELOPMENT) ## mypy, strict
	$(BIN)/mypy

contracts: $(DEVELOPMENT) ## import-linter: who may import whom
	$(BIN)/lint-imports --no-cache

sql: $(DEVELOPMENT) ## sqlfluff
	$(BIN)/sqlfluff lint --disable-progress-bar cohort_sql/sql

check: lint types contracts sql ## all static checks

evidence: $(DEVELOPMENT) ## rebuild every quoted figure into evidence/
	$(BIN)/python -m flows.evidence --out evidence
	$(BIN)/python -m flows.evidence_forget --out evidence/forget.json
	$(BIN)/python tests/mutations.py --out evidence/mutations.json
	$(BIN)/python tests/operate.py --out evidence/operate.json

picture: demo ## take the README's picture of the report
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1200,1500 --screenshot=docs/report.png "file://$$(realpath "$$RUN")/report.html"

bench: $(RUNTIME) ## benchmarks as ratios within one run
	$(BIN)/icu-memory bench --out evidence/bench.json

clean: ## remove the demo, builds and caches; keeps the virtual environment
	rm -rf demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
