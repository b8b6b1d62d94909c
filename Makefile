# Everything needs python3 (3.11 or newer) and make; the rest is installed into .venv. PYTHON=… names another python.
PYTHON ?= python3
PIP_OPTIONS ?=
BIN := .venv/bin

.PHONY: demo test test-long docs clean

demo: .venv/installed ## train a translator in a few minutes and look inside it
	$(BIN)/dragoman quickstart

test: .venv/installed-dev ## style, types, import contracts, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -m "not long"

test-long: .venv/installed-dev ## the tests that take minutes each: 200 kill cycles, learned tasks
	$(BIN)/pytest -m long --timeout 7200

docs: .venv/installed-dev ## write the pages that are generated
	$(BIN)/python docs/generate_commands.py
	$(BIN)/python docs/generate_api.py

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) here; install Python 3.11 or newer, or say make PYTHON=/path/to/python." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) --version), but Dragoman needs Python 3.11 or newer; say make PYTHON=/path/to/it." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv." >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing Dragoman and what it needs into .venv; this takes a minute or two."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) -c constraints.txt -e .
	@touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing Dragoman, what it needs and what its tests need into .venv; this takes a minute or two."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) -c constraints.txt -e ".[dev]"
	@touch .venv/installed $@

clean: ## remove what was installed, not what was trained
	rm -rf .venv build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
