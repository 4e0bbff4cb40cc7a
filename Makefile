# Everything runs in .venv, which each target makes or updates by itself.
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BENCH  := .bench/venv
TORCH  := .torch/venv

.PHONY: demo test test-torch lint docs docs-check format bench bench-peers clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: $(READY)  ## Optimise noisy Branin; print the recommendation, draw the picture
	$(BIN)/python examples/branin.py

test: $(READY)  ## All tests of the core
	$(BIN)/python -m pytest

$(TORCH)/.ready: pyproject.toml tests/botorch/requirements.txt
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet torch==2.13.0  # alone: see requirements.txt
	$(TORCH)/bin/python -m pip install --quiet --requirement tests/botorch/requirements.txt --editable ".[botorch]"
	touch $@

test-torch: $(TORCH)/.ready  ## Tests of the BoTorch acquisition, in an environment of its own
	$(TORCH)/bin/python -m pytest tests/botorch

lint: $(READY)  ## Format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(READY)  ## The documentation, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-check: docs  ## Every page in a headless Chromium: no error, no broken link, a search that finds
	$(BIN)/python docs/check.py build/site $(FLAGS)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(BENCH)/.ready: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet torch==2.13.0  # alone: see requirements.txt
	$(BENCH)/bin/python -m pip install --quiet --requirement benchmarks/requirements.txt --editable .
	touch $@

bench: $(BENCH)/.ready  ## Speed beside other tools and exact RMES against Adam, in an environment of its own
	$(BENCH)/bin/python benchmarks/speed.py $(FLAGS)
	$(BENCH)/bin/python benchmarks/exact.py

bench-peers: $(BENCH)/.ready  ## True regret beside other tools, a short version of docs/benchmarks.md
	$(BENCH)/bin/python benchmarks/regret.py --short --rows .bench/regret-short.jsonl

clean:
	rm -rf $(VENV) .bench .torch build dist
