# `make` lists the targets. Everything runs in .venv, which the first target that needs it makes (tools/environment).
PY := .venv/bin/python
TESTS ?= tests
ARGS ?=
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
.PHONY: help demo quick test test-all test-pythons test-bare check sync docs picture format lock bench bench-transport bench-faults bench-engine bench-client bench-sessions bench-topics bench-rules bench-due bench-transactions bench-forward bench-spark bench-workers prove-engine prove-moves prove-reserved prove-time prove-sessions prove-removal prove-spark prove-workers prove-bytes dist environment clean

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

picture: environment-test ## run the demonstration, and draw its terminal for the README (docs/demo.svg)
	$(PY) -m tools.picture

format: environment ## format the code, and correct what the linter can correct
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

lock: environment-test ## lock the packages of requirements/ with their hashes (ARGS=--upgrade for newer ones)
	$(PY) -m tools.lock $(ARGS)

bench: bench-transport bench-faults bench-engine bench-client bench-sessions bench-topics bench-rules bench-due bench-transactions bench-forward bench-spark bench-workers ## run all benchmarks

bench-transport: environment-test ## measure the transport
	$(PY) -m benchmarks.transport $(ARGS)

bench-faults: environment-test ## show the effects of faults on callers, beside redis-py
	$(PY) -m benchmarks.faults $(ARGS)

bench-engine: environment-test ## measure the engine beside bare streams: server time, memory, long queues, bounds, reserved ranges, audit
	$(PY) -m benchmarks.engine $(ARGS)

bench-client: environment-test ## measure the client beside NATS and bare streams: ways of calling, partitions, cluster, idle latency
	@tools/nats
	$(PY) -m benchmarks.client $(ARGS)

bench-sessions: environment-test ## measure sessions beside a queue: many in one entity, latency, memory, server time
	$(PY) -m benchmarks.sessions $(ARGS)

bench-topics: environment-test ## measure topics beside a queue: fan-out, filters, many subscriptions
	$(PY) -m benchmarks.topics $(ARGS)

bench-rules: environment-test ## measure the rules: filters a second, indexed and not
	$(PY) -m benchmarks.rules $(ARGS)

bench-due: environment-test ## measure how long calls hold the server while a million messages are due at once
	$(PY) -m benchmarks.due $(ARGS)

bench-transactions: environment-test ## measure a transaction beside its calls alone: server time, through the client, goals
	$(PY) -m benchmarks.transactions $(ARGS)

bench-forward: environment-test ## measure moves within a slot and between slots: bulk, latency, goals
	$(PY) -m benchmarks.forward $(ARGS)

bench-spark: environment-test ## measure Spark beside redis-py and pyarrow: reads, writes, streams, jobs, goals
	@tools/system-packages java
	@tools/spark
	$(PY) -m benchmarks.spark $(ARGS)

bench-workers: environment-test ## measure the worker beside other frameworks, and draw the picture for the guide (20 minutes)
	@tools/peers
	$(PY) -m benchmarks.workers --json .cache/bench-workers.json --picture docs/workers-speed.svg $(ARGS)

prove-engine: environment-test ## run the long test of the engine: its state machine against its model
	$(PY) -m tests.engine.proof.long_run $(ARGS)

prove-moves: environment-test ## run the long test of moves: movers, receivers and failures
	$(PY) -m tests.engine.proof.moves_run $(ARGS)

prove-reserved: environment-test ## run the long test of reserved ranges: readers that crash, old calls, failovers
	$(PY) -m tests.engine.proof.reserved_run $(ARGS)

prove-time: environment-test ## run the long test of the effects of time, with and without looks in between
	$(PY) -m tests.engine.proof.looking $(ARGS)

prove-sessions: environment-test ## run the long test of sessions (some minutes)
	$(PY) -m tests.engine.proof.sessions_run $(ARGS)

prove-removal: environment-test ## run the long test of the removal of unused entities
	$(PY) -m tests.registry.removal.run $(ARGS)

prove-spark: environment-test ## run the long test of Spark's jobs: kills of Python, Java and servers (ARGS='captures --times 4')
	@tools/system-packages java
	@tools/spark
	$(PY) -m tests.spark.chaos.run $(ARGS)

prove-workers: environment-test ## run the long tests of workers: kills, signals, outages, pauses, failovers, memory (ARGS='kills --times 20')
	$(PY) -m tests.workers.chaos.run $(ARGS)

prove-bytes: environment-test ## search for bytes that a decoder does not read as it should (ARGS='message --seconds 600')
	$(PY) -m tests.hostile.run $(ARGS)

dist: environment ## build the sdist and the wheel into dist/, and try the wheel with each extra; uploads nothing
	$(PY) -m tools.dist

environment: ## make .venv with all packages that the targets need
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
