# `make demo` and `make test` do all the set-up themselves; they need Python 3.11 or newer and make.
PYTHON ?= python3
WORKERS ?= 2
SYSTEM_WORKERS ?= 3  # they wait for servers, Java and browsers a third of their time; four take no less
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(VENV)/torch/bin/python
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# A quarter of the time that pip takes. Without bytecode, each process compiles anew what it imports where it may not write.
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python

# One thread per process: small models gain nothing from more, and the test workers share the cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 RAYON_NUM_THREADS=1

OPTIONS := -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST := $(ONE_THREAD) $(BIN)/python $(OPTIONS)

.PHONY: demo test system thorough soak lint types docs bench format wheel dev clean
.DELETE_ON_ERROR:

demo: $(VENV)/.package  ## train, log, register, serve and ask
	$(BIN)/python example_projects/credit/demo.py $(ARGS)

test: $(VENV)/.dev  ## all tests but those of `make system`
	$(PYTEST) -m 'not system and not torch' $(ARGS)

system: $(VENV)/.nice $(VENV)/.torch  ## tests of servers, examples and the pages of docs as a user runs them
	$(PYTEST) -n $(SYSTEM_WORKERS) -m system $(ARGS)
	$(ONE_THREAD) $(TORCH) $(OPTIONS) -m torch $(ARGS) $(shell grep -rl --include='*.py' 'mark\.torch' tests)

thorough: $(VENV)/.nice $(VENV)/.torch  ## all tests, with many more examples of every law and every scenario of the suites; hours
	HYPOTHESIS_PROFILE=ci $(ONE_THREAD) $(TORCH) $(OPTIONS) $(ARGS)

soak: $(VENV)/.dev  ## answers, attacks, load, damaged artifacts and fuzzed requests at length, with figures; about an hour
	for part in answers server artifacts privacy; do $(ONE_THREAD) $(BIN)/python tests/soak/$$part.py || exit 1; done

lint: $(VENV)/.dev  ## formatting, lint rules, sizes of files and functions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/check_sizes.py

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.dev  ## the documentation as a site, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir site

bench: $(VENV)/.nice  ## every explainer beside dice-ml and NICE, GeCo beside its paper
	$(ONE_THREAD) $(BIN)/python example_projects/benchmark/bench.py --store example_projects/benchmark/.runs $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --outdir dist

dev: $(VENV)/.dev

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis example_projects/*/.demo example_projects/*/.runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11 ...")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) "uv>=0.7"
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.created
	@echo "Installing mlflow-cf with MLflow into $(VENV); once, about a minute"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.created
	@echo "Installing mlflow-cf with MLflow and the development tools into $(VENV); once, about a minute"
	@$(INSTALL) -e '.[dev]'
	@touch $@

# A peer of the benchmark. It asks for older releases of numpy and pandas than it needs.
$(VENV)/.nice: $(VENV)/.dev
	@$(INSTALL) --no-deps NICEx==0.2.3
	@touch $@

# For the tests of networks alone, in an environment on top of the other: where scikit-learn finds it, every process that
# reads a model of skops imports it, for two seconds.
$(VENV)/.torch: $(VENV)/.dev
	@echo "Installing PyTorch into $(VENV)/torch; once"
	@$(BIN)/python -m venv $(VENV)/torch
	@all=$$(cd $(VENV)/lib/python3.*/site-packages && pwd) && cd $(VENV)/torch/lib/python3.*/site-packages && \
		echo "import site; site.addsitedir('$$all')" >all.pth
	@$(TORCH) -m pip install -qq --disable-pip-version-check torch==2.13.0  # not uv: it reads no configuration of pip, which may name the build without CUDA
	@touch $@
