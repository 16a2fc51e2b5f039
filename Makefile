PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo reproduce test test-all lint types bench bench-auto bench-large check-everyday bench-models bench-regression bench-family bench-simplex sbc docs browser screenshots notebook clean

help:
	@echo "make demo      logistic regression on a million rows, with a picture"
	@echo "make reproduce the article's experiments with Stan, half an hour; the report goes to docs/methods/reproduction"
	@echo "make reproduce QUICK=1 the same with shortened chains, minutes; the report goes to build/reproduction"
	@echo "make test      lint, types, tests"
	@echo "make test-all  the same and the slow statistical checks"
	@echo "make bench     speed and memory, side by side with a hand-written C loop; the import beside that of JAX"
	@echo "make bench-auto accuracy of sample against time, and growth with the number of rows; half an hour"
	@echo "make bench-large 10 GB of rows on disk beside the same model in memory; half an hour"
	@echo "make check-everyday sample on everyday models against references; an hour; SLOW=1 adds the horseshoe"
	@echo "make bench-models sample beside NUTS on hierarchies, shrinkage, many parameters and classics; hours"
	@echo "make bench-regression glm beside statsmodels, NUTS, scikit-learn, on large frames; hours"
	@echo "make bench-family the samplers side by side on four targets, cost per effective draw at equal bias; an hour"
	@echo "make bench-simplex SCIR beside SGRLD and variational Bayes: a known posterior, and topics; minutes"
	@echo "make sbc       simulation-based calibration of sample, five models, 200 replications each; hours"
	@echo "make browser   Chromium, from Debian's packages: tests look at reports in it, and skip that where it is missing"
	@echo "make screenshots pictures of a report for the documentation; needs Chromium"
	@echo "make notebook  run the notebook among the examples again and write its output into it"
	@echo "make docs      build the documentation into site/"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/sgmcmc demo

reproduce: $(STAMP)
ifdef QUICK
	$(BIN)/python -m reproduction all --quick --out build/reproduction
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[reproduction]'
	$(BIN)/python -m reproduction all --out docs/methods/reproduction
endif

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/basedpyright

test: lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'slow or not slow'

bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py

bench-auto: $(STAMP)
	$(BIN)/python -m benchmarks.auto

bench-large: $(STAMP)
	$(BIN)/python -m benchmarks.large

check-everyday: $(STAMP)
	$(BIN)/python -m benchmarks.everyday --write $(if $(SLOW),--slow)

bench-models: $(STAMP)
	$(BIN)/python -m benchmarks.models --write

sbc: $(STAMP)
	$(BIN)/python -m benchmarks.calibration --write

browser:
	$(if $(filter 0,$(shell id -u)),,sudo )apt-get install --yes --no-install-recommends chromium

screenshots: $(STAMP)
	$(BIN)/python -m tools.screenshots

notebook: $(STAMP)
	$(BIN)/python -m tools.notebook examples/claims.ipynb

bench-regression: $(STAMP)
	$(BIN)/python -m benchmarks.regression --write

bench-family: $(STAMP)
	$(BIN)/python -m benchmarks.family --write
	$(BIN)/python -m tools.family --write

bench-simplex: $(STAMP)
	$(BIN)/python -m benchmarks.simplex --write

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site build dist benchmarks/build
