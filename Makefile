# What a developer types. Each target installs what it needs into .venv first; PYTHON=/path/to/python3 names another Python.
PYTHON ?=
BIN := .venv/bin
# Processes of the test suite.
WORKERS ?= 2
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test networks bench docs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the tutorial's pipeline and a training task, on a spot pool whose nodes are taken away
	@scripts/bootstrap demo
	@$(BIN)/python examples/iris/demo.py

test: ## everything CI runs: style, types, layers, tests
	@scripts/bootstrap dev
	@echo "== ruff check"
	@$(BIN)/ruff check
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check
	@echo "== mypy"
	@$(BIN)/mypy
	@echo "== lint-imports"
	@$(BIN)/lint-imports --no-logo
	@echo "== pytest"
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) $(ARGS)

networks: ## the tests of checkpoints that need JAX and Keras: 600 MB more
	@scripts/bootstrap networks
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) tests/checkpoint $(ARGS)

bench: ## measure speed and size, ours beside kfp.local
	@scripts/bootstrap run
	@$(BIN)/python benchmarks/run.py $(ARGS)

docs: ## write the generated pages again
	@scripts/bootstrap dev
	@set -e; for script in scripts/make_*.py; do $(BIN)/python $$script; done

lock: ## pin every dependency again; ARGS=--upgrade for the newest versions
	@scripts/lock $(ARGS)

clean: ## remove .venv and everything that can be made again
	@rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
