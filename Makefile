# Everything that one does with this repository. `make help` lists the targets.

# The first interpreter that runs and is new enough; override with `make PYTHON=...`.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)

VENV = .venv/bin/python
PIP = $(VENV) -m pip --disable-pip-version-check --quiet

# Stamps: an environment is built again only when pyproject.toml changes.
INSTALLED = .venv/.installed
INSTALLED_BENCH = .venv/.installed-bench
INSTALLED_DOCS = .venv/.installed-docs
INSTALLED_TORCH = .venv/.installed-torch

# The tests start many processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# How many programs `make fuzz` runs.
PROGRAMS ?= 10000

.DEFAULT_GOAL := help
.PHONY: help demo test sweep fuzz check size golden replay bench docs torch packages

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(INSTALLED)  ## train a network on handwritten digits, and show what happens inside
	$(VENV) examples/demo.py

test: $(INSTALLED)  ## run the tests, and of those with many cases a share
	$(VENV) -m pytest -n 2 --dist worksteal

sweep: $(INSTALLED)  ## run all tests, each with all its cases
	$(VENV) -m pytest -n 2 --dist worksteal --sweep

fuzz: $(INSTALLED)  ## hold 10,000 random programs against NumPy and finite differences
	TAPEGRAD_FUZZ_EXAMPLES=$(PROGRAMS) $(VENV) -m pytest -n 2 --dist worksteal tests/fuzz tests/honesty/concurrency_test.py tests/emit/agreement_test.py tests/scipy/names_test.py

check: $(INSTALLED)  ## check formatting, lint, types and the size of the code
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	for system in darwin win32; do .venv/bin/mypy --platform $$system --no-warn-unreachable \
		--cache-dir .mypy_cache/$$system || exit 1; done
	$(VENV) -m tests.project.size

size: $(INSTALLED)  ## print the lines of code by folder, beside their budget
	$(VENV) -m tests.project.size

golden: $(INSTALLED)  ## rewrite the golden texts of the tests
	$(VENV) -m pytest --update-golden

replay: $(INSTALLED)  ## show what a change does to tapes, plans and sources; INTO=before on the state before it
	TAPEGRAD_DEBUG= $(VENV) -m tests.project.replay $(or $(INTO),after)

bench: $(INSTALLED_BENCH)  ## measure gradients beside JAX and others; ONLY='mlp*,call' some of them
	$(VENV) benchmarks/run.py $(if $(ONLY),--only '$(ONLY)')

torch: $(INSTALLED_TORCH)  ## install PyTorch (some 5 GB), and hold tapegrad.nn against it
	$(VENV) -m pytest -n 2 --dist worksteal tests/nn

packages: $(INSTALLED)  ## try both distributions with the oldest and the newest of what they ask for; PYTHONS='...' on others
	$(VENV) -m tests.project.packages $(PYTHONS)

docs: $(INSTALLED_DOCS)  ## build the site in site/
	.venv/bin/mkdocs build --strict

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "tapegrad needs Python 3.11 or newer on the PATH" >&2; exit 1; }
	@echo "installing into .venv (takes a minute or two the first time)"
	@test -x $(VENV) || $(PYTHON) -m venv .venv
	@$(PIP) install -e ".[demo,test]"
	@touch $@

$(INSTALLED_BENCH): $(INSTALLED)
	@echo "installing the engines to compare with"
	@$(PIP) install -e ".[bench]"
	@touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	@echo "installing what builds the site"
	@$(PIP) install -e ".[docs]"
	@touch $@

$(INSTALLED_TORCH): $(INSTALLED)
	@echo "installing PyTorch"
	@$(PIP) install -e ".[torch]"
	@touch $@
