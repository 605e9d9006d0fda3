PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup check
setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lance,connect]' --group dev
	@touch $@
