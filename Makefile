# Everything a newcomer or CI needs: `make demo`, `make test`. Each sets itself up in .venv and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint thorough coverage docs mutants bench rivals clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "hkrr needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# The stamps keep a second run quick; they are remade when the requirements change.
$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing hkrr and matplotlib (once) ..."
	@$(PIP) install -c constraints.txt -e ".[plot]"
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing hkrr and what its tests need (once; PyTorch takes a minute) ..."
	@$(PIP) install -c constraints.txt -e ".[test]"
	@touch $@ $(VENV)/.demo

setup: $(VENV)/.test  ## make .venv with all that the tests need

demo: $(VENV)/.demo  ## fit a planted multi-index model and draw demo.png
	@$(BIN)/python -m hkrr.experiments.demo

lint: $(VENV)/.test  ## ruff, mypy in strict mode, the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A process for each core, with one thread of BLAS: more would wait for each other.
test: lint  ## lint, then the tests with warnings as errors
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

thorough: $(VENV)/.test  ## all tests, and thousands of generated cases (half an hour)
	OMP_NUM_THREADS=1 HKRR_LONG=1 $(BIN)/python -m pytest -m "thorough or not thorough" -n auto --dist worksteal

coverage: $(VENV)/.test  ## the tests' coverage by lines and branches, 95% at least
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term

$(VENV)/.docs: $(VENV)/.test
	@echo "installing what the documentation needs (once) ..."
	@$(PIP) install -c constraints.txt -e ".[docs]"
	@touch $@

# Warnings are errors. The second command checks links and anchors within the site; links to other hosts are listed in
# docs/_build/linkcheck/output.json and not fetched: there may be no network.
docs: $(VENV)/.docs  ## the documentation, with every example run, in docs/_build/html (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees -b html docs docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees -b linkcheck docs docs/_build/linkcheck
	@echo "docs/_build/html/index.html"

# A mutant lives in a forked process: one thread of BLAS. pytest has a version of its own there, see the requirements.
.venv-mutants/.ready: benchmarks/requirements-mutants.txt pyproject.toml
	@echo "installing mutmut and what the tests need into .venv-mutants (once) ..."
	@$(PYTHON) -m venv .venv-mutants
	@.venv-mutants/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e ".[torch]"
	@.venv-mutants/bin/python -m pip --disable-pip-version-check --quiet install -r benchmarks/requirements-mutants.txt
	@touch $@

mutants: .venv-mutants/.ready  ## mutants of the objective, the projections and the line search (some minutes): docs/mutants.md
	OMP_NUM_THREADS=1 .venv-mutants/bin/python -m mutmut run
	.venv-mutants/bin/python -m mutmut results

bench: $(VENV)/.test  ## the benchmarks (an hour, 3 GB of disk; rewrites benchmarks/results)
	$(BIN)/python benchmarks/objective.py
	$(BIN)/python benchmarks/adaptive.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/soak.py

# Tables, where there are some: make rivals DATA=folder, with folder/NAME/data.csv.gz and test_mask.csv.gz in it.
TABLES := $(patsubst %/data.csv.gz,%:split=0,$(wildcard $(DATA)/*/data.csv.gz))

.venv-bench/.ready: benchmarks/requirements.txt pyproject.toml
	@echo "installing the peers into .venv-bench (once; some gigabytes with a GPU's PyTorch) ..."
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip --disable-pip-version-check --quiet install -e ".[cli]" -r benchmarks/requirements.txt
	@touch $@

rivals: .venv-bench/.ready  ## this library and its rivals side by side (three hours; Ctrl-C and again goes on): benchmarks/README.md
	.venv-bench/bin/hkrr bench planted $(TABLES) --methods all --seconds 20 --limit 300 --n-jobs 2 --out benchmarks

clean:  ## remove .venv and caches
	rm -rf docs/_build docs/api/generated docs/benchmarks docs/gallery
	rm -rf $(VENV) .venv-mutants mutants .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
