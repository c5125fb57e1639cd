# Two commands do everything: `make demo` and `make test`. Both need Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SECONDS ?= 0
RESULT ?= benchmarks/results/$(shell date -u +%F)-$(shell git rev-parse --short HEAD).json
RESULT := $(RESULT)
# A run starts hundreds of processes; without bytecode each compiles what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo build-kernel test prepared checks lint types imports test-unit test-unit-reference test-model-quick test-model test-destinations integration integration-spark integration-capture integration-alone test-matrix test-resume test-failpoints test-large test-mutations fuzz chaos soak bench bench-quick format clean

$(VENV)/.installed: pyproject.toml setup.py $(wildcard capture/*.pyx capture/transcode/*.pyx capture/transcode/*.pxd apply_spark/*.pyx apply_spark/*.pxd)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev,bench]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/penstock demo $(if $(filter-out 0,$(SECONDS)),--seconds $(SECONDS))

# The install builds it where there is a compiler; this builds it again after a change, and fails where there is none.
build-kernel: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	$(BIN)/python -c 'import apply_spark.avro_decoder, capture.read_ahead, capture.transcode.kernel'

# Most of the time of an integration test is waiting for servers: five processes run side by side, on servers of their own.
test: $(VENV)/.installed
	$(MAKE) --no-print-directory -j3 integration-spark integration-capture checks
	$(MAKE) --no-print-directory integration-alone

# What is fetched or made once for each machine, before anybody waits for it against the clock.
prepared: $(VENV)/.installed
	$(BIN)/python -c 'from console.local_stack.spark import spark_runtime; spark_runtime()'

integration: integration-spark integration-capture integration-alone

checks:
	$(MAKE) --no-print-directory lint types imports test-unit test-unit-reference test-model-quick

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

imports: $(VENV)/.installed
	$(BIN)/lint-imports

test-unit: $(VENV)/.installed
	$(BIN)/pytest --quiet tests/unit

# What transcodes or decodes, once more on the path that needs no compiler; nothing else asks which one is chosen.
test-unit-reference: $(VENV)/.installed
	PENSTOCK_KERNEL=reference $(BIN)/pytest --quiet -m 'not both_paths' tests/unit/capture tests/unit/apply_spark

# The protocol as a model: seconds here, minutes below. PENSTOCK_TEST_SEED begins the random walks elsewhere.
test-model-quick: $(VENV)/.installed
	$(BIN)/pytest --quiet tests/model

test-model: $(VENV)/.installed
	PENSTOCK_TEST_MODEL_SECONDS=90 PENSTOCK_TEST_SEED=$${PENSTOCK_TEST_SEED:-$$(date +%s)} $(BIN)/pytest -s -v tests/model

# The longest tests come first, so that both processes end together.
SIDE_BY_SIDE := --numprocesses 2 --dist worksteal

integration-spark: prepared
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'spark and not alone and not further' tests/chaos tests/integration tests/contract

integration-capture: prepared
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'not spark and not alone and not further' tests/chaos tests/integration tests/contract

# Every destination but memory and a DuckDB file, on its engine, and the walk through failpoints.
test-destinations: prepared
	$(BIN)/pytest $(SIDE_BY_SIDE) -m further tests/chaos tests/integration tests/contract

# What measures time, after all others, with a Spark as users have it.
integration-alone: prepared
	SPARK_SUBMIT_OPTS= $(BIN)/pytest -m alone tests/integration

# What depends on the version of Postgres, on every version; `make test` takes types on the oldest as well, and 17 for all.
VERSIONS ?= 14 15 16 17 18
VERSIONED := $(addprefix tests/integration/test_, publications.py partitions.py replica_identities.py slots.py table_copies.py large_things.py doctor.py end_to_end.py ddl.py)

test-matrix: $(VENV)/.installed
	PENSTOCK_TEST_POSTGRES_VERSIONS=$$(echo $(VERSIONS) | tr ' ' ,) $(BIN)/pytest $(SIDE_BY_SIDE) tests/integration/test_all_types.py
	set -e; for version in $(VERSIONS); do PENSTOCK_TEST_POSTGRES=$$version $(BIN)/pytest $(SIDE_BY_SIDE) -rs $(VERSIONED); done

# Ten kills of capture during a copy of two million rows; `make test` does two on 60,000. PENSTOCK_TEST_SEED repeats a run.
test-resume: $(VENV)/.installed
	PENSTOCK_TEST_RESUME_ROWS=2000000 PENSTOCK_TEST_RESUME_KILLS=10 $(BIN)/pytest -s --timeout 1200 tests/chaos/test_resumed_copies.py -k again_and_again

# Everything that can go wrong at every failpoint, at every destination; `make test` does one thing at each, at two destinations.
test-failpoints: prepared
	PENSTOCK_TEST_WALK=whole $(BIN)/pytest -s --timeout 1800 tests/chaos/test_failpoints_of_capture.py tests/chaos/test_failpoints_of_apply.py

# A transaction of ten million rows, and a row of 200 MB; `make test` has 300,000 rows, and 80 MB.
test-large: $(VENV)/.installed
	PENSTOCK_TEST_TRANSACTION_ROWS=10000000 PENSTOCK_TEST_ROW_MEGABYTES=200 $(BIN)/pytest -s tests/integration/test_large_things.py -k 'one_huge_transaction or a_larger_row'

# Every promise broken on purpose, one line at a time, in a copy of the code: the test that is named must fail. ONLY takes some.
test-mutations: $(VENV)/.installed
	$(BIN)/python -m tests.mutations $(if $(ONLY),--only '$(ONLY)')

# Nightly; `make test` does the same for a bounded time.
fuzz: $(VENV)/.installed
	$(BIN)/python -m tests.fuzz_kernel --executions 1000000

# Random faults on every part and every link; `make test-destinations` does one round. SEED repeats the choices of a run, ONLY names faults.
MINUTES ?= 3
chaos: prepared
	$(BIN)/python -m tests.chaos_suite --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT))

# A pipeline under a steady load, an hour unless MINUTES says otherwise; fails where something grew by more than its bound. Writes a result and docs/soak.md.
SOAK := benchmarks/results/soak/$(shell date -u +%F)-$(shell git rev-parse --short HEAD).json
soak: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.soak --minutes $(if $(filter file,$(origin MINUTES)),60,$(MINUTES)) --out $(SOAK); code=$$?; \
	test -f $(SOAK) && $(BIN)/python -m benchmarks.soak --report $(SOAK); exit $$code

# Three quarters of an hour on a quiet machine, the transaction of ten million rows included. Writes a result file and docs/benchmarks.md; both are to be committed together.
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --huge --out $(RESULT)
	$(BIN)/python -m benchmarks --quick --out $(RESULT)
	$(BIN)/python -m benchmarks --report $(RESULT)

# Fails when a ratio is more than 20 % worse than in the newest committed result.
bench-quick: $(VENV)/.installed
	$(BIN)/python -m benchmarks --quick --check benchmarks/results

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
