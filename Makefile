# Everything runs from .venv, which `make setup` builds. Other choices: make test PYTHON=python3.12 JOBS=8
PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# One torch thread per test process: JOBS processes already use the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup browser test test-all test-gpu lint format docs compare bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## build .venv with the command .venv/bin/ordinate (once)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Ordinate needs Python 3.11 or newer, but '$(PYTHON)' is not that." >&2; \
		echo "If you have one under another name: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(BIN)/python -m pip install -qq --editable '.[dev]'
	@touch $@

browser: # Debian's chromium, in which the tests look at pages; without it they are skipped
	@command -v chromium >/dev/null || \
		if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
			echo "Installing chromium, for the tests of pages"; \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
		else echo "No chromium here: the tests of pages are skipped"; fi

test: setup browser ## run the default tests
	@$(PYTEST)

test-all: setup browser ## run every test but those that need a GPU
	@$(PYTEST) -m 'not gpu'

test-gpu: ## run the contracts on a GPU, with the python3 and torch of that machine
	@PYTHONPATH=src $(PYTHON) -m ordinate.testing --device cuda

lint: setup ## check style and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: setup ## put the code into its style
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

docs: setup ## build the pages in docs/_build/html; a warning is an error
	@$(BIN)/sphinx-build -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html

compare: setup ## train and compare seven methods, about ten minutes; again, it goes on
	@$(BIN)/ordinate compare

bench: setup ## measure what the interface costs, and how fast trials train
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/training.py

clean: ## remove what was built, .venv too
	@rm -rf $(VENV) build dist docs/_build docs/_methods .pytest_cache .ruff_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
