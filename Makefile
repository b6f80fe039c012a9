# What people run before they push, and what .ci/run runs: `make check`. Every step stands alone (`make types`).
PYTHON ?= python
.PHONY: check steps test system lint types docs notebooks dist verifier campaign mutants

check:
	$(MAKE) -j2 --output-sync=target steps
	$(MAKE) system

steps: lint types docs notebooks dist

test:  ## the default run: minutes
	$(PYTHON) -m pytest

system:  ## servers, browsers, clusters, kills, and what takes longer: everything but the campaign
	$(PYTHON) -m pytest -m '(slow or system) and not campaign'

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

docs:
	$(PYTHON) -m tests.site build

notebooks:
	$(PYTHON) -m tests.site notebooks

dist:
	$(PYTHON) -m tests.distribution

verifier:  ## the verifier as one file, which needs nothing but Python
	$(PYTHON) -m smoothcert_verify.build smoothcert-verify.pyz

campaign:
	$(PYTHON) -m pytest -m campaign

mutants:
	$(PYTHON) -m tests.mutants
