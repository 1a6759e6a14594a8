# Commands for developers and CI. The first call of a target installs what the target needs into .venv.
PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup demo test format lint thorough coverage docs mutants bench rivals clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "hkrr needs Python 3.11 or newer; choose an interpreter with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# The empty files .demo and .test mark completed installations. If the requirements change, hkrr is installed again.
$(VENV)/.demo: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing hkrr and matplotlib (once) ..."
	@$(PIP) install -c constraints.txt -e ".[plot]"
	@touch $@

$(VENV)/.test: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing hkrr and its test dependencies (once; PyTorch takes a minute) ..."
	@$(PIP) install -c constraints.txt -e ".[test]"
	@touch $@ $(VENV)/.demo

setup: $(VENV)/.test  ## create .venv and install everything the tests need

demo: $(VENV)/.demo  ## fit a planted multi-index model and draw demo.png
	@$(BIN)/python -m hkrr.experiments.demo_picture

format: $(VENV)/.test  ## apply ruff's fixes and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(VENV)/.test  ## run ruff, mypy in strict mode and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The tests run in one process per core with one BLAS thread each. More threads would only wait for each other.
test: lint  ## lint, then run the tests with warnings as errors
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

thorough: $(VENV)/.test  ## run all tests and thousands of generated cases (half an hour)
	OMP_NUM_THREADS=1 HKRR_LONG=1 $(BIN)/python -m pytest -m "thorough or not thorough" -n auto --dist loadfile

coverage: $(VENV)/.test  ## measure line and branch coverage; fails below 95%
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report=term

$(VENV)/.docs: $(VENV)/.test
	@echo "installing the documentation's dependencies (once) ..."
	@$(PIP) install -c constraints.txt -e ".[docs]"
	@touch $@

# Sphinx treats warnings as errors. The second command checks the links within the site. Links to other hosts are only
# listed, in docs/_build/linkcheck/output.json, so that no network is needed.
docs: $(VENV)/.docs  ## build the documentation in docs/_build/html and run every example (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees -b html docs docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees -b linkcheck docs docs/_build/linkcheck
	@echo "docs/_build/html/index.html"

# mutmut forks a process for each mutant, so BLAS must use one thread. mutmut needs an older version of pytest, which
# benchmarks/requirements-mutants.txt specifies. Therefore it has an environment of its own.
.venv-mutants/.ready: benchmarks/requirements-mutants.txt pyproject.toml
	@echo "installing mutmut and the test dependencies into .venv-mutants (once) ..."
	@$(PYTHON) -m venv .venv-mutants
	@.venv-mutants/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e ".[torch]"
	@.venv-mutants/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install -r benchmarks/requirements-mutants.txt
	@touch $@

mutants: .venv-mutants/.ready  ## run mutation tests of the objective and the line search (some minutes): docs/mutants.md
	OMP_NUM_THREADS=1 .venv-mutants/$(SCRIPTS)/python -m mutmut run
	.venv-mutants/$(SCRIPTS)/python -m mutmut results

bench: $(VENV)/.test  ## run the benchmarks (an hour, 3 GB of disk) and rewrite benchmarks/results
	$(BIN)/python benchmarks/objective.py
	$(BIN)/python benchmarks/adaptive.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/soak.py

# To include tables, run: make rivals DATA=folder TABLES="folder folder". In DATA, each table is a subfolder with
# data.csv.gz and test_mask.csv.gz. In TABLES, each table is a file NAME.csv.gz with the target in the last column.
REPEATS := 0 1 2
RIVALS := planted $(foreach k,$(REPEATS),$(patsubst %/data.csv.gz,%:split=$(k),$(wildcard $(DATA)/*/data.csv.gz))) \
  $(foreach k,$(REPEATS),$(patsubst %,%:seed=$(k),$(wildcard $(TABLES:%=%/*.csv.gz)))) \
  $(foreach k,$(REPEATS),$(patsubst %,sklearn:%:seed=$(k),breast_cancer digits iris wine diabetes))
METHODS ?= tables
SECONDS ?= 60

.venv-bench/.ready: benchmarks/requirements.txt pyproject.toml
	@echo "installing the other methods into .venv-bench (once; some gigabytes with PyTorch for a GPU) ..."
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install -e ".[cli]" -r benchmarks/requirements.txt
	@touch $@

rivals: .venv-bench/.ready  ## compare hkrr with other methods (a day; resumes after Ctrl-C): benchmarks/README.md
	.venv-bench/$(SCRIPTS)/hkrr bench $(RIVALS) --methods $(METHODS) --seconds $(SECONDS) --threads 2 --out benchmarks/rivals-$(SECONDS)s

clean:  ## remove the environments, the built documentation and all caches
	rm -rf docs/_build docs/api/generated docs/benchmarks docs/gallery
	rm -rf $(VENV) .venv-mutants .venv-bench mutants .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
