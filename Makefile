# Everything a contributor types. Nothing outside this checkout is changed.
PYTHON ?= python3
# Another Python has its own below .venv: what leaves out .venv leaves it out as well.
VENV ?= .venv
UV ?= $(firstword $(wildcard .venv/bin/uv) uv)
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# make lock LOCK_ARGUMENTS=--upgrade takes the newest of everything; without it, pins stay.
LOCK_ARGUMENTS ?=
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" $(LOCK_ARGUMENTS)
PYTEST_ARGUMENTS ?=
# Tests run in as many processes; those that use Spark share one of them. Many tests wait for timers and
# for other processes, so that five keep two cores busy. One that dies ends the run with the name of
# its test: pytest-xdist, which would start another one, then waits for it for ever.
TEST_PROCESSES ?= 5
SUPPORTED_PYTHONS := 3.11 3.12 3.13
# The next one, too, where it is at hand.
PAGES_PYTHONS := $(SUPPORTED_PYTHONS) 3.14
PAGES := $(addprefix tests/project/test_,programs_in_docs.py readme.py examples.py tutorial.py)
PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup --max-worker-restart 0
# What `make test-long` runs. Each step can be run by itself, the quickest are first.
LONG_STEPS := test-long-examples test-long-processes test-long-servers test-long-campaigns \
	test-long-mistakes test-pythons
PYTEST_LONG := EXAMPLES=all $(PYTEST) -m long
MISTAKES := tests/jepsen_like/test_planted_mistakes.py
PROCESS_RUNS := tests/jepsen_like/chaos
# The slowest test of the default suite takes a quarter of a minute, and waits for its processes for some
# minutes at most. One that takes longer than this ends its process, after the stacks of its threads.
TEST_LIMIT_S ?= 600
# A test that fails is run so often again. Its first failure is printed whole and counted as "rerun":
# timers of real processes may run late on a busy machine, and whoever reads it decides whether that was all.
TEST_RERUNS ?= 1
BENCH_ARGUMENTS ?=
CHAOS_ARGUMENTS ?=

# Tests start hundreds of processes. Where this is set, each of them compiles the whole product anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# It holds for each make that reads this file, whatever its --jobs are.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:
.PHONY: help setup setup-spark setup-web test test-pythons test-pages test-pages-pythons \
	test-long test-long-campaigns test-long-examples test-long-mistakes test-long-processes test-long-servers \
	tests-compiled check format lint types docs demo \
	protos clients client-matrix client-gaps client-losses interop-java \
	bench bench-failover bench-broker bench-spark sim chaos soak chaos-pysyncobj mutants lock clean distclean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-26s %s\n", $$1, $$2 }'

setup: $(VENV)/.installed-package ## make .venv with the locked tools and this project in it

setup-spark: setup $(VENV)/.installed-spark ## add Spark, Arrow and a Java run time to .venv

setup-web: $(VENV)/web/.installed ## make .venv/web, with the servers that the documented web programs run in

test: setup-spark ## run the default test suite, Spark included
	$(PYTEST) --reruns $(TEST_RERUNS) -o faulthandler_timeout=$(TEST_LIMIT_S) -o faulthandler_exit_on_timeout=true \
		$(PYTEST_ARGUMENTS)

test-pythons: $(SUPPORTED_PYTHONS:%=test-by-python%) ## run the default test suite by the other Pythons that are here

# Make a target by another Python, if it is here: $(call by_python,3.12,test)
by_python = own=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	if test $(1) = "$$own"; then echo "Python $(1): make $(2) runs the tests by it"; exit; fi; \
	for python in python$(1) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1).*/bin/python$(1); do \
		if "$$python" -c "" 2>/dev/null; then \
			exec $(MAKE) $(2) VENV=.venv/python$(1) PYTHON="$$python"; \
		fi; \
	done; \
	echo "Python $(1): not found here, its tests are skipped"

test-by-python%: setup
	@$(call by_python,$*,test)

test-pages: setup ## run the programs of the documentation alone
	$(PYTEST) -m "long or not long" $(PAGES) $(PYTEST_ARGUMENTS)

test-pages-pythons: $(PAGES_PYTHONS:%=test-pages-by-python%) ## run them by the other Pythons that are here

test-pages-by-python%: setup
	@$(call by_python,$*,test-pages)

# Every step is run, and those that failed are named at the end.
test-long: setup-spark setup-web ## run what the default suite leaves out: test-pythons, and every test-long-...
	@failed=; for step in $(LONG_STEPS); do \
		echo "make test-long: $$step"; $(MAKE) --no-print-directory --keep-going $$step || failed="$$failed $$step"; \
	done; \
	if test -n "$$failed"; then echo "make test-long: failed:$$failed" >&2; exit 1; fi; \
	echo "make test-long: every step passed"

test-long-campaigns: setup-spark ## simulate many seeds, and judge many histories
	$(PYTEST_LONG) tests/jepsen_like --ignore $(MISTAKES) --ignore $(PROCESS_RUNS) $(PYTEST_ARGUMENTS)

test-long-mistakes: setup-spark ## simulate until a seed shows each planted mistake
	$(PYTEST_LONG) $(MISTAKES) $(PYTEST_ARGUMENTS)

test-long-processes: setup-spark ## break real processes, in short runs of every kind
	$(PYTEST_LONG) $(PROCESS_RUNS) $(PYTEST_ARGUMENTS)

test-long-servers: setup-spark setup-web ## run all other long tests: hostile requests, Spark, web servers
	$(PYTEST_LONG) --ignore tests/jepsen_like $(PYTEST_ARGUMENTS)

test-long-examples: setup-spark ## try all examples of every property, by Hypothesis
	EXAMPLES=all $(PYTEST) -m "hypothesis and not long" $(PYTEST_ARGUMENTS)

# What takes minutes of a processor runs beside the tests, when these leave one idle. It says what it
# found as soon as it ends; the tests end last, and so does their closing line.
check: setup-spark ## all that a change must pass: format, lint, types, docs, tests
	@$(MAKE) --jobs=2 --output-sync=target SIDE_BY_SIDE=yes tests-compiled format lint
	@{ found=$$(nice $(MAKE) types docs 2>&1) && ended=0 || ended=1; echo; echo "$$found"; exit $$ended; } & \
	$(MAKE) test && passed=0 || passed=1; \
	if ! wait $$!; then echo "make check: types or docs failed, see above" >&2; exit 1; fi; exit $$passed

# Else each of the processes of the tests compiles all tests, at the same time. What is wrong in one is
# told by `make test`.
tests-compiled: setup-spark
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true

format: setup ## say which files are not formatted
	$(BIN)/ruff format --check .

lint: setup ## look for mistakes with ruff
	$(BIN)/ruff check .

types: setup-spark ## check the types with mypy, Spark and numpy included
	$(BIN)/mypy

docs: setup ## build the documentation into build/docs; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going --quiet -b html -d build/doctrees docs build/docs

demo: setup-spark ## start a cluster, send, break, replay: the whole project in one run
	$(BIN)/python -m jepsen_like.demo

clients: setup ## drive clients written by others (as many as Node, Maven with a JDK, Go and Cargo are there for)
	$(BIN)/python tests/clients/run.py

client-matrix: setup ## drive all clients of gRPC plain, by TLS, and signed; prints which feature goes with which
	$(BIN)/python tests/clients/matrix.py

client-gaps: setup ## how long clients written by others wait when a leader is killed, frozen or ended
	$(BIN)/python tests/clients/gaps.py

client-losses: setup ## compare what Java clients were told with what came, while leaders are killed and frozen
	$(BIN)/python tests/clients/losses.py

interop-java: setup ## hold our files against Java DLedger's own store (needs Maven and a JDK)
	$(BIN)/python tests/interop/run.py

# make bench BENCH_ARGUMENTS=--quick is one table in three minutes; all of it takes an hour and a half.
bench: setup ## measure throughput beside other systems, those that are found here
	$(BIN)/python -m bench throughput $(BENCH_ARGUMENTS)

bench-failover: setup ## kill and stop leaders under load, ours and those of other systems
	$(BIN)/python -m bench failover $(BENCH_ARGUMENTS)

bench-broker: setup ## measure brokers beside RocketMQ's own (needs a JDK, Maven and a C compiler)
	$(BIN)/python -m bench broker $(BENCH_ARGUMENTS)

bench-spark: setup-spark ## read a log in Spark, beside Spark reading Parquet
	$(BIN)/python -m bench spark $(BENCH_ARGUMENTS)

sim: setup ## simulate 2000 seeds of faults in virtual time
	$(BIN)/jepsen-like simulate --seeds 2000

# Its folder is build/suite-chaos-SEED. CHAOS_ARGUMENTS="--seed 7" makes the same runs again, or goes on with them.
chaos: setup ## break real processes in every way, and check what clients saw: twenty minutes
	@mkdir -p build
	cd build && ../$(BIN)/jepsen-like suite chaos $(CHAOS_ARGUMENTS)

# It goes on where it was stopped, for as many hours again; build/soak/index.html tells of all runs.
SOAK_ARGUMENTS ?= --hours 8
soak: setup ## make the runs of all suites again and again, for eight hours
	@mkdir -p build
	$(BIN)/jepsen-like suite chaos partition disk membership broker --out build/soak $(SOAK_ARGUMENTS)

# It succeeds if the run finds something: status 1.
chaos-pysyncobj: setup ## kill PySyncObj while it writes snapshots; the run must find that entries are lost
	@mkdir -p build
	$(BIN)/jepsen-like run --workload append --system bench.pysyncobj_chaos_member --rate 30 \
		--nemesis bench.snapshot_nemesis:KillAtSnapshot --out build/pysyncobj-$$$$ $(CHAOS_ARGUMENTS); test $$? -eq 1

mutants: setup ## plant every known mistake in a copy of the code; each must turn a test red
	$(BIN)/python tests/mutants/run.py

lock: ## write requirements/*.txt anew (for maintainers; needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: run $(BIN)/pip install uv" >&2; exit 1; }
	$(LOCK) pyproject.toml -o requirements/base.txt
	$(LOCK) pyproject.toml --extra dev -c requirements/base.txt -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra spark -c requirements/dev.txt -o requirements/spark.txt
	$(LOCK) pyproject.toml --extra web-tests -c requirements/dev.txt -o requirements/web.txt
	$(LOCK) requirements/build.in -c requirements/dev.txt -o requirements/build.txt

# The compiler of protobuf has a venv of its own: nothing else needs it.
PROTOS := build/protos
PROTOS_OUT ?= .
protos: $(PROTOS)/.installed ## write proxy/wire/messages_pb2.py anew, from messages.proto
	$(PROTOS)/bin/python -m grpc_tools.protoc --proto_path=. --python_out=$(PROTOS_OUT) --pyi_out=$(PROTOS_OUT) \
		proxy/wire/messages.proto

$(PROTOS)/.installed: Makefile
	$(PYTHON) -m venv $(PROTOS)
	$(PROTOS)/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.74.0
	@touch $@

clean: ## remove what builds and tests left behind; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -path ./.venv -prune -o -path ./.git -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf .venv

# Each stamp is touched last: an interrupted step is done again by the next run.
$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: install Python 3.11 or later, or name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit("$(PYTHON) is Python " + v + ": Python 3.11 or later is needed, name one with make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(PYTHON) -c 'import sys; sys.exit("$(PYTHON) cannot make virtual environments: run apt-get install python%d.%d-venv" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-tools: requirements/dev.txt requirements/build.txt $(VENV)/.made
	$(PIP_INSTALL) --require-hashes -r requirements/build.txt
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.installed-package: pyproject.toml $(VENV)/.installed-tools
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# pyspark comes as source only. It is built with the locked setuptools, not with whatever
# setuptools is newest that day, hence no build isolation.
$(VENV)/.installed-spark: requirements/spark.txt $(VENV)/.installed-tools
	$(PIP_INSTALL) --no-compile --require-hashes --no-build-isolation --use-pep517 -r requirements/spark.txt
	@touch $@

# A venv of its own: these packages bring plugins for pytest, and are not in the default tests.
$(VENV)/web/.installed: requirements/web.txt $(VENV)/.made
	$(BIN)/python -m venv $(VENV)/web
	$(VENV)/web/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/web.txt
	@touch $@
