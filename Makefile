# Requires make and Python 3.11 or newer; everything else is installed into .venv. Set PYTHON=… to use another Python.
PYTHON ?= python3
PIP_OPTIONS ?=
BIN := .venv/bin
# Images of containers often set it; without cached bytecode every pytest process compiles all tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo install style check test test-long docs clean

demo: .venv/installed ## train a translator in a few minutes and inspect it
	$(BIN)/dragoman quickstart

install: .venv/installed ## install into .venv

style: .venv/installed-dev ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: style ## style and the tests that start no process or browser and train no model: about a minute
	$(BIN)/pytest -m "not slow and not long"

test: style ## style and all tests but the long ones
	$(BIN)/pytest -m "not long"

test-long: .venv/installed-dev ## the tests that take minutes each: 200 kill cycles, learned tasks
	$(BIN)/pytest -m long --timeout 7200

docs: .venv/installed-dev ## write the generated pages
	$(BIN)/python docs/generate_commands.py
	$(BIN)/python docs/generate_api.py

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; install Python 3.11 or newer, or run make PYTHON=/path/to/python." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) --version), but Dragoman needs Python 3.11 or newer; run make PYTHON=/path/to/it." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "$(PYTHON) cannot create virtual environments; on Debian and Ubuntu: apt-get install python3-venv." >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing Dragoman and its requirements into .venv; this takes a minute or two."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) -c constraints.txt -e .
	@touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing Dragoman, its requirements and those of its tests into .venv; this takes a minute or two."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) -c constraints.txt -e ".[dev]"
	@touch .venv/installed $@

clean: ## remove what was installed, but no runs
	rm -rf .venv build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
