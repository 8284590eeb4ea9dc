# `make` lists the targets. Everything runs in .venv, which the first target that needs it makes (tools/environment).
PY := .venv/bin/python
TESTS ?= tests
ARGS ?=
WHAT ?=
# Whether the tests that need Java and PySpark are among the tests to run.
SPARK := $(filter tests tests/spark%,$(TESTS))

# pip, virtualenv and pyright need a home folder. If there is none, they get one here.
ifeq ($(filter /%,$(HOME)),)
export HOME := $(CURDIR)/.cache/home
endif

# The tests start in half the time if Python keeps what it has compiled.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/bytecode

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-all test-pythons test-bare check sync docs format lock bench prove dist clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{ printf "%-24s %s\n", $$1, $$2 }'

demo: environment-demo ## run a demonstration of sbredis on servers that it starts itself
	@tools/spark if-kept
	$(PY) examples/demo.py

test: environment-test environment-spark ## run the tests (TESTS=tests/house for all tests of a part, ARGS=… for pytest)
ifeq ($(TESTS),tests)
	@tools/side-by-side test $(ARGS)
else
	$(PY) -m pytest $(ARGS) $(TESTS)
endif

test-all: environment-test environment-spark ## run the tests of make test, and then the long ones (ARGS=… for pytest)
ifeq ($(TESTS),tests)
	@tools/side-by-side all $(ARGS)
else
	$(PY) -m pytest $(ARGS) $(TESTS)
endif

# The tests that make test leaves out; .ci/run makes this after make test.
.PHONY: test-rest
test-rest: environment-test environment-spark
ifeq ($(TESTS),tests)
	@tools/side-by-side rest $(ARGS)
else
	$(PY) -m pytest --part rest $(ARGS) $(TESTS)
endif

quick: environment-test ## run only the tests that need no server, which takes less time (ARGS=… for pytest)
	$(PY) -m pytest -q -p no:cacheprovider --quick --dist worksteal -n auto $(ARGS) $(TESTS)

test-pythons: environment-test ## run the quick tests on every Python from 3.11 on that is found
	$(PY) -m tools.pythons $(ARGS)

test-bare: environment-test ## run `make demo` and a part of `make test` in a bare Debian (as root; ARGS=--whole for all tests)
	@tools/system-packages bare
	@$(PY) -m tools.bare_debian $(ARGS)

check: environment environment-docs ## check style, formatting, types, the import rule, the documentation, its spelling and its site
	$(PY) -m tools.check

sync: environment ## make the modules of sbredis/sync, and their tests, from those of sbredis/aio
	$(PY) -m tools.make_sync

docs: environment-docs ## build the documentation site into .cache/site/html
	$(PY) -m tools.site

format: environment ## format the code, and correct what the linter can correct
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

lock: environment-test ## lock the packages of requirements/ with their hashes (ARGS=--upgrade for newer ones)
	$(PY) -m tools.lock $(ARGS)

bench: environment-test ## run all benchmarks (WHAT=client for one, ARGS=… for it)
	@$(PY) -m tools.runs bench "$(WHAT)" $(ARGS)

prove: environment-test ## list the proofs, which are long random tests (WHAT=moves runs one, ARGS=… for it)
	@$(PY) -m tools.runs prove "$(WHAT)" $(ARGS)

dist: environment ## build the sdist and the wheel into dist/, and try the wheel with each extra; uploads nothing
	$(PY) -m tools.dist

# The targets below make .venv with the packages that a target needs; `make environment` makes it with all of them.
.PHONY: environment
environment:
	@tools/environment check

.PHONY: environment-demo
environment-demo:
	@tools/environment demo

.PHONY: environment-test
environment-test:
	@tools/environment

# The packages of the system, and PySpark if the tests need it.
.PHONY: environment-spark
environment-spark: environment-test
	@tools/system-packages $(if $(SPARK),java)
	@$(if $(SPARK),tools/spark)

.PHONY: environment-docs
environment-docs:
	@tools/environment docs

clean: ## remove all files that the targets have made
	rm -rf .cache .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .venv build dist htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
