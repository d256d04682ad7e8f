# Two commands on a fresh machine: `make run` and `make test`. They need Python, make and git, and nothing else.
#
#   make run                    sets up, starts the local cloud and the app, prints the address and keys; Ctrl-C ends it
#   make run PORT=8001          another port (default 8000)
#   make run MODEL=smollm2      a small real model on this machine (installed at its first start)
#   make test                   sets up and runs the fast tests; `make test-slow` the others, `make test-all` every test
#   make check                  format, lint, types, import arrows
#   TURNLOG_STATE_DIR=...       where state is kept (default .turnlog)

PYTHON ?= python3
VENV := .venv
EMULATOR := .emulator
BIN := $(VENV)/bin
WORKERS ?= 2

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
export PYTHONDONTWRITEBYTECODE := 0
export PORT MODEL

PIP := -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: run test test-slow test-all check setup clean python

run: $(VENV)/.local $(EMULATOR)/.installed
	@exec $(BIN)/python -m infra.local

test: setup
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not real_model"

test-slow: setup
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow or real_model"

test-all: setup
	@$(BIN)/python -m pytest -q -n $(WORKERS)

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

setup: $(VENV)/.dev $(EMULATOR)/.installed

# What is installed is stamped by the requirements that it came from, so that the next start is instant. The dev
# requirements contain the local ones.
$(VENV)/.local: requirements-local.txt
	@$(MAKE) python
	@if [ ! -e $(VENV)/.dev ] || [ requirements-dev.txt -nt $(VENV)/.dev ]; then \
		echo "Setting up $(VENV) (once) ..."; \
		$(PYTHON) -m venv $(VENV) && $(BIN)/python $(PIP) -r requirements-local.txt \
		&& $(BIN)/python $(PIP) --no-deps --no-build-isolation --editable . ; \
	fi
	@touch $@

$(VENV)/.dev: requirements-dev.txt
	@$(MAKE) python
	@echo "Setting up $(VENV) with the tools of development (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) -r requirements-dev.txt
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(EMULATOR)/.installed: requirements-emulator.txt
	@$(MAKE) python
	@echo "Setting up $(EMULATOR) (once) ..."
	@$(PYTHON) -m venv $(EMULATOR)
	@$(EMULATOR)/bin/python $(PIP) -r requirements-emulator.txt
	@touch $@

python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "Turnlog needs Python 3.11 to 3.13: $(PYTHON) was not found; install it, or name another with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "Turnlog needs Python 3.11 to 3.13: $(PYTHON) is another version; name a fitting one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Turnlog needs Python's venv module: install it (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }

clean:
	@rm -rf $(VENV) $(EMULATOR) .smollm2 build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
