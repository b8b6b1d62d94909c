# Requires make and Python 3.11 or newer; everything else is installed into .venv. Set PYTHON=… to use another Python.
PYTHON ?= python3
PIP_OPTIONS ?=
# What the tests need is checked by hash. LOCKED=no installs by version alone, where files for a platform are not listed.
LOCKED ?= yes
BIN := .venv/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
KERNELS := setup.py $(wildcard src/dragoman/native/*.[ch])
TOOLS := .venv/tools
LOCK_OPTIONS := --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"
# Images of containers often set it; without cached bytecode every pytest process compiles all tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo install kernels style check test test-long docs lock audit sbom clean

demo: .venv/installed ## train a translator in a few minutes and inspect it
	$(BIN)/dragoman quickstart

install: .venv/installed ## install into .venv

kernels: .venv/bin/python ## compile the C files into src again, after changing them
	$(BIN)/python setup.py --quiet build_kernels --inplace

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

.venv/installed: .venv/bin/python pyproject.toml constraints.txt $(KERNELS)
	@echo "Installing Dragoman and its requirements into .venv; this takes a minute or two."
	$(PIP) install $(PIP_OPTIONS) -c constraints.txt -e .
	@touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt requirements/test.txt requirements/torch.txt $(KERNELS)
	@echo "Installing Dragoman, its requirements and those of its tests into .venv; this takes a minute or two."
ifeq ($(LOCKED),yes)
	$(PIP) install $(PIP_OPTIONS) --require-hashes --no-deps -r requirements/test.txt
	$(PIP) download $(PIP_OPTIONS) --no-deps --dest .venv/torch -c constraints.txt torch
	$(PIP) install $(PIP_OPTIONS) --require-hashes --no-deps --no-index --find-links .venv/torch -r requirements/torch.txt || \
	  { echo "This build of torch is not in requirements/torch.txt: it is installed without checking its hash." >&2; \
	    $(PIP) install $(PIP_OPTIONS) --no-deps --no-index --find-links .venv/torch -c constraints.txt torch; }
	@rm -r .venv/torch
	$(PIP) install $(PIP_OPTIONS) --no-deps --no-build-isolation -e .
	@$(PIP) check >/dev/null || { echo "Installing what this build of torch requires."; $(PIP) install $(PIP_OPTIONS) -c constraints.txt torch; }
else
	$(PIP) install $(PIP_OPTIONS) -c constraints.txt -e ".[dev]"
endif
	@touch .venv/installed $@

$(TOOLS)/installed: .venv/bin/python requirements/tools.txt
	$(BIN)/python -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --require-hashes --no-deps -r requirements/tools.txt
	@touch $@

lock: $(TOOLS)/installed ## write the hashes of what pyproject.toml and constraints.txt name
	cd requirements && ../$(TOOLS)/bin/uv pip compile $(LOCK_OPTIONS) -c ../constraints.txt --extra dev --excludes excluded.txt ../pyproject.toml test.in -o test.txt
	cd requirements && ../$(TOOLS)/bin/uv pip compile $(LOCK_OPTIONS) tools.in -o tools.txt

audit: $(TOOLS)/installed ## look for known vulnerabilities in what is locked
	$(TOOLS)/bin/python requirements/audit.py

sbom: .venv/installed-dev ## write the bill of materials of what is installed
	$(BIN)/python requirements/sbom.py dist/dragoman.cdx.json

clean: ## remove what was installed, but no runs
	rm -rf .venv build dist src/*.egg-info src/dragoman/native/libraries .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
