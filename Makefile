# One command per purpose. They write to .venv and .cache of the clone; outside of it only to the caches
# of pip, Go and Spark's resolver, and they install Java if it is missing and apt-get may run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait for processes and disks a third of their time, so there are more workers than cores of CI.
PYTEST_WORKERS ?= 3
CAMPAIGN_MINUTES ?= 10
# Tests write and sync many small files: in memory where there is room for 8 GiB of them.
TEST_TMPDIR ?= $(shell [ "$$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -1)" -ge 8 ] 2>/dev/null && echo /dev/shm)
IN_MEMORY := $(if $(TEST_TMPDIR),TMPDIR=$(TEST_TMPDIR))

# Tests start thousands of processes: where bytecode is not kept, each compiles the source again, 0.3 s.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help environment setup lint check test coverage bench soak campaign demo demo-service new-user docs site clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

environment: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lakehand needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[spark,lance,connect,aws,unity,hive,service,postgresql,web]' --group dev
	@touch $@

setup: environment ## install everything that the tests use: Java, Spark's jars, servers, Chromium
	scripts/install-java
	scripts/install-postgresql || test -n "$$LAKEHAND_ALLOW_SKIPS"
	$(MAKE) --no-print-directory $(VENV)/.jars
	scripts/install-s3-server || test -n "$$LAKEHAND_ALLOW_SKIPS"
	scripts/install-azurite || test -n "$$LAKEHAND_ALLOW_SKIPS"
	scripts/install-delta-rs-with-dynamodb || test -n "$$LAKEHAND_ALLOW_SKIPS"
	scripts/install-prometheus || test -n "$$LAKEHAND_ALLOW_SKIPS"
	scripts/install-chromium || test -n "$$LAKEHAND_ALLOW_SKIPS"

$(VENV)/.jars: $(VENV)/.ready scripts/warm-spark-jars tests/support/oracle_server.py
	$(BIN)/python scripts/warm-spark-jars
	@touch $@

lint: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint ## lint, strict types, limits on the source, unit tests; no JVM; under a minute
	@$(BIN)/python scripts/code_metrics.py --check
	$(BIN)/pytest tests/unit -n $(PYTEST_WORKERS) -m 'not spark and not server' --durations=5

test: setup lint ## every test
	$(IN_MEMORY) $(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup -m 'not soak'

coverage: setup ## every test with the lines that it runs: a third slower; fails below 95 percent
	$(BIN)/coverage erase
	$(IN_MEMORY) $(BIN)/coverage run -m pytest -n $(PYTEST_WORKERS) --dist loadgroup -m 'not soak'
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: environment ## measure lakehand beside its peers, in one run
	@scripts/install-java || echo "Going on without those who need Java." >&2
	@failed=; for script in benchmarks/bench_*.py; do \
	  echo "== $$script"; $(BIN)/python $$script || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "Failed, or below a goal:$$failed" >&2; exit 1; }

soak: setup campaign ## the long versions of the concurrency and crash tests, and the campaign
	$(BIN)/pytest -m soak --timeout=3600

campaign: setup ## random operations, writers, kills and faults; continues where the last run ended
	scripts/install-faketime
	$(IN_MEMORY) PYTHONPATH=tests $(BIN)/python -m campaign --minutes $(CAMPAIGN_MINUTES)
	PYTHONPATH=tests $(BIN)/python -m campaign --report

demo: environment ## a real table full of small files: before, after, rows proved equal
	@$(BIN)/python scripts/demo.py

demo-service: environment ## 50 tables with writers, looked after by lakehand serve
	@$(BIN)/python scripts/demo_service.py

new-user: environment ## install into a fresh environment, run every page from its top, uninstall
	$(BIN)/python scripts/try_as_new_user.py

docs: environment ## regenerate the reference pages from the code
	$(BIN)/python scripts/generate_settings.py
	$(BIN)/python scripts/generate_reference.py

site: environment ## build the documentation site in .cache/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open .cache/site/index.html"

clean: ## remove what the commands above made
	rm -rf $(VENV) .cache .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
