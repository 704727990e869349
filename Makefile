# Two commands do everything on a new machine: `make demo` and `make test`.
# Both create .venv and install what they need into it; nothing else on the machine changes.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# stolen work leaves neighbouring tests together, which share what is made for them
PYTEST_ARGS ?= -n auto --dist worksteal
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test quick test-all lint format bench reproduce studies docs links coverage dist test-oldest test-newest clean

help:
	@echo "make demo    simulate an observation and detect the source in it; look at demo/report.html"
	@echo "make test    run the tests"
	@echo "make quick   run the quick tests, without slow ones and examples: for the minutes after an edit"
	@echo "make test-all  run all tests, with Monte Carlo studies, killed workers and reproduced tables: before a release"
	@echo "make lint    check formatting, lint, types and layers"
	@echo "make format  format the code and apply safe fixes"
	@echo "make bench   run the benchmarks"
	@echo "make reproduce    run the experiments of the paper; TARGETS='crab --trials 3' for a part; look at reproduction/"
	@echo "make studies run the measurements of the validation page (hours); NAMES='verdicts speed' for some"
	@echo "make docs    build the documentation site with its tutorials; look at docs/_build/html/index.html"
	@echo "make links   ask the servers of all links that lead out of the site; needs a network"
	@echo "make coverage     run all tests and say which lines of the package no test runs; look at htmlcov/index.html"
	@echo "make dist         build wheel and sdist, check them, and run the demo from the wheel in a new environment"
	@echo "make test-oldest  run the quick tests with the lowest supported version of every dependency"
	@echo "make test-newest  run the quick tests with the newest ones, pre-releases included"
	@echo "make clean   remove virtual environments, builds and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "excess needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) --editable "."
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) --editable ".[dev]"
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) --editable ".[docs]"
	@touch $@ $(VENV)/.core

# all of it at once, for the gate
$(VENV)/.all: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) --editable ".[dev,docs]"
	@touch $@ $(VENV)/.core $(VENV)/.dev $(VENV)/.docs

demo: $(VENV)/.core
	$(BIN)/excess demo -o demo --overwrite

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

quick: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow and not campaign" tests

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "campaign or not campaign"

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_language.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

TARGETS ?= all
reproduce: $(VENV)/.dev
	$(BIN)/python -m studies.paper $(TARGETS)

NAMES ?=
studies: $(VENV)/.dev
	$(BIN)/python -m studies $(NAMES)

# warnings are errors: a link to a page or a name that does not exist is one
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	$(BIN)/python tools/check_links.py docs/_build/html

# needs a network: asks the servers of all links that lead out of the site
links: $(VENV)/.docs
	$(BIN)/python -m sphinx --quiet -b linkcheck docs docs/_build/links

# kernels are seen through the test that runs them as Python, in a process of its own
coverage: $(VENV)/.dev
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest $(PYTEST_ARGS) --cov --cov-report=term --cov-report=html

dist: $(BIN)/python
	$(PIP_INSTALL) build twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/check_dist.py dist

# Old libraries warn of the newer ones that they are installed with, and that is not about this package: these warnings are no errors.
OTHERS_WARN := -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning -W ignore::FutureWarning

test-oldest:
	$(PYTHON) -m venv --clear .venv-oldest
	$(PYTHON) tools/oldest.py test > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-oldest/oldest.txt --editable ".[test]"
	NUMBA_CACHE_DIR=$(CURDIR)/.venv-oldest/kernels .venv-oldest/bin/python -m pytest $(PYTEST_ARGS) $(OTHERS_WARN) -m "not slow and not campaign" tests

test-newest:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --pre --editable ".[test]"
	NUMBA_CACHE_DIR=$(CURDIR)/.venv-newest/kernels .venv-newest/bin/python -m pytest $(PYTEST_ARGS) -m "not slow and not campaign" tests

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest dist htmlcov .coverage .coverage.* docs/_build docs/_tutorials docs/api/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
