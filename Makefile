# Two commands do everything: `make demo` and `make test`. Both need Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SECONDS ?= 0

.PHONY: demo build-kernel test lint types imports unit integration format clean

$(VENV)/.installed: pyproject.toml setup.py $(wildcard capture/transcode/*.pyx capture/transcode/*.pxd)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/penstock demo $(if $(filter-out 0,$(SECONDS)),--seconds $(SECONDS))

# The install builds it where there is a compiler; this builds it again after a change, and fails where there is none.
build-kernel: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -c 'import capture.transcode.kernel'

test: lint types imports unit integration

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

imports: $(VENV)/.installed
	$(BIN)/lint-imports

unit: $(VENV)/.installed
	$(BIN)/pytest tests/unit
	PENSTOCK_KERNEL=reference $(BIN)/pytest tests/unit/capture

integration: $(VENV)/.installed
	$(BIN)/pytest tests/contract tests/integration tests/chaos

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
