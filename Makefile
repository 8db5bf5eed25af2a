# make demo | test | check | golden | clean      with another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
# The interpreter's version is part of the stamp's name, so that another PYTHON gets a fresh environment.
PYTAG := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CREATED := $(VENV)/.created-$(PYTAG)
INSTALLED := $(VENV)/.installed
TESTABLE := $(VENV)/.testable

.PHONY: demo test check golden clean
.DELETE_ON_ERROR:

# whichrank exits with 1 when it found a problem, and the example has one.
demo: $(INSTALLED)
	$(VENV)/bin/whichrank examples/oom-two-nodes || test $$? -eq 1

test: $(TESTABLE)
	$(VENV)/bin/python -m pytest -n auto -q $(PYTEST_ARGS)

check: $(TESTABLE)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	if [ -f docs/build.py ]; then $(VENV)/bin/python docs/build.py --check; fi

# Writes the pages that the tests compare with anew: read the diff before it is committed.
golden: $(TESTABLE)
	UPDATE_GOLDEN=1 $(VENV)/bin/python -m pytest -q tests/report

clean:
	rm -rf .venv .venv-* build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(CREATED):
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(INSTALLED): $(CREATED) pyproject.toml
	$(PIP) --editable .
	touch $@

$(TESTABLE): $(CREATED) pyproject.toml
	$(PIP) --editable '.[test]'
	touch $(INSTALLED) $@
