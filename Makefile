# Two commands do everything on a new machine: `make demo` and `make test`.
# Both create .venv and install what they need into it; nothing else on the machine changes.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n auto

.PHONY: help demo test quick lint format bench docs clean

help:
	@echo "make demo    simulate an observation and detect the source in it; look at demo/report.html"
	@echo "make test    run the tests"
	@echo "make quick   run the quick tests, without slow ones and examples: for the minute after an edit"
	@echo "make lint    check formatting, lint, types and layers"
	@echo "make format  format the code and apply safe fixes"
	@echo "make bench   run the benchmarks"
	@echo "make docs    build the documentation site with its tutorials; look at docs/_build/html/index.html"
	@echo "make clean   remove $(VENV) and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "excess needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[report]"
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core
	$(BIN)/excess demo -o demo --overwrite

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

quick: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow" tests

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@for file in benchmarks/bench_*.py benchmarks/compare_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# warnings are errors: a link to a page or a name that does not exist is one
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build docs/_tutorials docs/api/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
