# What a developer types. Each target installs what it needs into .venv first; PYTHON=/path/to/python3 names another Python.
PYTHON ?=
BIN := .venv/bin
# Processes of the test suite. Many tests wait for real processes, so five of them fill two cores.
WORKERS ?= 5
export PYTHON
# Tests start the command hundreds of times: it starts in half the time where Python may keep the compiled modules.
export PYTHONDONTWRITEBYTECODE :=

PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help demo check test test-long test-hostile fuzz test-page page image release audit pictures style types rules networks torch torch-set torch-long torch-bench bench bench-rehearsals bench-cluster bench-page docs docs-serve docs-version written lock clean \
	cluster cluster-ci cluster-down cluster-record cluster-test

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the tutorial's pipeline and a training task, on a spot pool whose nodes are taken away
	@scripts/bootstrap demo
	@$(BIN)/python examples/iris/demo.py

check: style ## style, types, layers and the fast tests: two minutes
	@echo "== pytest, without slow tests"
	@$(PYTEST) -m "not slow and not long and not many and not cluster and not browser and not torch" $(ARGS)

test: style ## style, types, layers and the tests: six minutes
	@echo "== pytest"
	@$(PYTEST) $(ARGS)

test-long: ## the rest of the tests: every crash point, world and example that `make test` samples, and more of each property
	@scripts/bootstrap dev
	@echo "== pytest, long tests"
	@$(PYTEST) --hypothesis-profile=long -m "(long or hypothesis) and not many and not cluster and not browser and not torch" $(ARGS)

test-hostile: ## 20,000 days of a hostile tenant beside a quiet one, 500 in each of 40 processes: two hours on two cores
	@scripts/bootstrap dev
	@$(BIN)/python -m pytest -n 0 -m "long or not long" tests/cluster/hostile $(ARGS)
	@seq 40 | xargs -P 4 -I SEED $(BIN)/python -m pytest -n 0 -q -o faulthandler_timeout=0 --hypothesis-profile=explore \
		--hypothesis-seed=SEED -k no_day tests/cluster/hostile/test_two_tenants.py

fuzz: TARGET = mutate
fuzz: SECONDS = 60
fuzz: ## fuzz what reads the texts of strangers, guided by coverage: TARGET=mutate|names|pod|checkpoint SECONDS=60
	@scripts/bootstrap dev
	@$(BIN)/python -c "import atheris" 2> /dev/null || $(BIN)/python -m pip install --quiet atheris==3.0.0
	@$(BIN)/python -m tests.fuzz $(TARGET) $(SECONDS) $(ARGS)

# mypy takes one core, so the rest runs beside it. The first collection in a clone compiles what five processes would else compile
# each; what is wrong with it, the tests say.
style:
	@scripts/bootstrap dev
	@$(MAKE) --no-print-directory --jobs=2 types rules

types:
	@echo "== mypy"
	@$(BIN)/mypy

rules:
	@echo "== ruff check"
	@$(BIN)/ruff check
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check
	@echo "== lint-imports"
	@$(BIN)/lint-imports --no-logo
	@test -d .hypothesis/constants || $(BIN)/python -m pytest --collect-only --quiet > /dev/null || true

cluster: ## a real Kubernetes on this machine, for root on Linux; starts when it is built, its controllers come within about 45 minutes
	@scripts/bootstrap run
	@$(BIN)/python -m testbed up

cluster-test: ## the tests on a real Kubernetes: the test bed, or with SPOTWRIGHT_CLUSTER=external the one of KUBECONFIG
	@scripts/bootstrap dev
	@$(BIN)/python -m pytest -m cluster tests/cluster $(ARGS)

cluster-ci: ## ten deaths on a Kubernetes of its own, as CI does; where this machine cannot, one line says why
	@scripts/bootstrap dev
	@$(BIN)/python -m testbed ci $(ARGS)

cluster-down: ## end the cluster, and check that nothing of it is left
	@scripts/bootstrap run
	@$(BIN)/python -m testbed down

cluster-record: ## record again how every workload dies, on a cluster that was started with TESTBED_TOLERATION=3: 30 minutes
	@scripts/bootstrap dev
	@$(BIN)/python -m tests.cluster.recorder $(ARGS)

page: ## the page's modules from npm, which a wheel carries and the repository does not; a browser's page needs them
	@scripts/bootstrap run
	@$(BIN)/python scripts/page_assets.py

test-page: WORKERS = 2
test-page: page ## the tests of the page in Chromium: apt-get install -y --no-install-recommends chromium
	@scripts/bootstrap dev
	@$(PYTEST) -m browser tests/page/browser tests/docs/test_site.py $(ARGS)

pictures: page ## the pictures of the page in docs/pictures, by Chromium; ARGS=--golden for those of the tests
	@scripts/bootstrap dev
	@$(BIN)/python scripts/page_pictures.py $(ARGS)

image: page ## the controller's image, by buildah, as an archive in build/; ARGS="--base IMAGE@sha256:... --twice"
	@scripts/bootstrap run
	@$(BIN)/python scripts/build_image.py $(ARGS)

release: page ## what a release publishes, in dist/: source distributions, wheels, SBOMs, notes; nothing is signed or sent
	@scripts/bootstrap run
	@$(BIN)/python scripts/release.py $(ARGS)

audit: ## what bandit, checkov and kube-score find in our Python, the chart and the Dockerfiles; some minutes the first time
	@scripts/bootstrap run
	@$(BIN)/python scripts/audit.py

networks: ## the tests of checkpoints that need JAX and Keras: 600 MB more
	@scripts/bootstrap networks
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) tests/checkpoint $(ARGS)

# PyTorch from the common index asks for CUDA's libraries; where they are missing, stand-ins are made, so that its CPU path loads.
STAND_INS = $(CURDIR)/.venv/cuda-stand-ins
TORCH = LD_LIBRARY_PATH=$(STAND_INS):$$LD_LIBRARY_PATH OMP_NUM_THREADS=1 $(BIN)/python
torch-set:
	@scripts/bootstrap torch
	@$(BIN)/python scripts/cuda_stand_ins.py $(STAND_INS)

torch: torch-set ## the tests of training with PyTorch: 1.6 GB more; one kill and one notice for each framework
	@$(TORCH) -m pytest --numprocesses 2 -m "not long" tests/torch $(ARGS)

torch-long: torch-set ## every kill, notice and number of ranks of training with PyTorch
	@$(TORCH) -m pytest --numprocesses 2 --hypothesis-profile=long -m "long or not long" tests/torch $(ARGS)

torch-bench: torch-set ## measure steps, agreements and saves with PyTorch, ours beside the framework alone
	@$(TORCH) -m benchmarks.torch $(ARGS)

bench: ## measure speed and size, ours beside kfp.local
	@scripts/bootstrap demo
	@PYTHONPATH=. $(BIN)/python benchmarks/run.py $(ARGS)

bench-rehearsals: ## the verdicts of rehearse beside the true ones of a table of scripts: some hours; ARGS="--times 8 NAME" for less
	@scripts/bootstrap dev
	@$(BIN)/python -m benchmarks.rehearsals $(ARGS)

bench-cluster: ## measure the controller at size, on 500 nodes that KWOK pretends; for root on Linux, half an hour
	@scripts/bootstrap dev
	@$(BIN)/python -m benchmarks.cluster.bench $(ARGS)

bench-page: page ## measure the page in Chromium: some minutes; ARGS=--quick for a first look
	@scripts/bootstrap dev
	@$(BIN)/python -m benchmarks.page $(ARGS)

docs: ## the site, in build/site: fails at a dead link or anchor; ARGS="--site-dir FOLDER"
	@scripts/bootstrap docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo "== docs: build/site/index.html"

docs-version: ## the site as one version of it, on the branch gh-pages of this clone; pushes nothing: VERSION=0.1
	@test -n "$(VERSION)" || { echo "expected a version: make docs-version VERSION=0.1"; exit 2; }
	@scripts/bootstrap docs
	@PATH=$(CURDIR)/$(BIN):$$PATH NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(VERSION) latest $(ARGS)
	@PATH=$(CURDIR)/$(BIN):$$PATH NO_MKDOCS_2_WARNING=1 mike set-default latest

docs-serve: ## the site on loopback, made again at each change of docs/
	@scripts/bootstrap docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve $(ARGS)

written: ## write the files that follow from the code: those of the chart, and the schema of spotwright.yaml
	@scripts/bootstrap run
	@PYTHONPATH=. $(BIN)/python scripts/make_chart.py
	@PYTHONPATH=. $(BIN)/python scripts/make_config_schema.py

lock: ## pin every dependency again; ARGS=--upgrade for the newest versions
	@scripts/lock $(ARGS)

clean: ## remove .venv and everything that can be made again
	@rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
		src/spotwright/page/assets/vendor distributions/*/*.egg-info distributions/*/build distributions/train/spotwright_train \
		distributions/train/LICENSE
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
