# make venv | torch | fast | test | acceptance | ci | coverage | test-browser | seconds | chaos | mutate | demo | docs | bench-peers | bench | ledger | clean. Needs Python >= 3.11 with venv, and network access for pip; PYTHON=... chooses one.

PYTHON ?= $(or $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done),python3)
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
DOCS_STAMP = $(VENV)/.docs-installed
PEERS = .venv-peers
PEERS_STAMP = $(PEERS)/.installed
PEERS_PYTHON ?= python3.11
TORCH ?= torch==2.13.0+cpu
JAX ?= jax==0.10.2
SEED ?= 1
MINUTES ?= 5
BENCHES ?= mlp dense torch embedding clicks input predict checkpoint startup accuracy memory growth recovery scaling

.PHONY: venv torch fast test acceptance ci seconds coverage test-browser chaos mutate demo docs bench bench-peers ledger clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "psflow needs Python >= 3.11, which '$(PYTHON)' is not; say which: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' has no venv module; install it (on Debian: apt install python3-venv)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The CPU build of torch, and JAX, for the tests of models in them, which are skipped without. A plain `pip install torch`
# may bring a build for CUDA of several GB
torch: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '$(TORCH)' '$(JAX)'

# Where it is set, each process would compile anew what was changed, 0.4 s of a start, and pytest each test, 8 s of one
fast test acceptance ci coverage: export PYTHONDONTWRITEBYTECODE =

# Before each commit, in two minutes: format, lint, import contracts, and every test that starts no process
fast: venv
	$(BIN)/python -m tests.checks fast

# The test suite, without what takes minutes
test: venv
	$(BIN)/python -m tests.checks test

# Everything that takes minutes, in pieces of ten, or one of them: make acceptance PIECE=3. Each leaves a line in docs/acceptance.md.
# PSFLOW_STOP=all has every scene meet every signal and every state of the servers (tests/acceptance/test_stop.py), half an hour more
acceptance: torch
	$(BIN)/python -m tests.checks acceptance $(if $(PIECE),--piece $(PIECE))

# What .ci/run does, once Chromium is there
ci: venv
	$(BIN)/python -m tests.checks ci

# Has the next runs begin with the modules that took longest in the latest ones
seconds: venv
	$(BIN)/python -m tests.checks seconds

# Lines and branches that make test runs, in all processes
coverage: venv
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n 2 --dist loadscope --no-loadscope-reorder
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --show-missing

# The pages of MLflow and Prefect in Chromium; pictures of them are left in runs/browser/
test-browser: venv
	$(BIN)/python -m pytest -m browser tests/browser

# Harms roles of real jobs, and what is around them, by a schedule that SEED decides, and prints what came of it (a line for
# each trial on stderr): make chaos SEED=1 MINUTES=5; a fixed number of trials: TRIALS=24;
# or with one fault alone: FAULT=kill. One trial again: TRIAL=7
chaos: venv
	$(BIN)/python -m tests.chaos --seed $(SEED) $(if $(TRIAL),--trial $(TRIAL),$(if $(TRIALS),--trials $(TRIALS),--minutes $(MINUTES)) $(if $(FAULT),--fault $(FAULT)))

# Changes the code in one place after the other, and shows in docs/mutation.md which changes no test notices; or in some
# rooms only: make mutate ROOMS="server placement"
mutate: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutate]'
	$(BIN)/python -m tests.mutation $(ROOMS)

demo: venv
	$(BIN)/python examples/demo.py

# The site, in docs/_build/html, in a minute; a warning is an error. The build needs no network once Sphinx is installed.
# All pages are read anew (-E), because a page that is not read again repeats no warning
docs: $(DOCS_STAMP) torch
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "built docs/_build/html/index.html"

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# All benchmarks, or those named, and their page: make bench BENCHES="mlp dense"
bench: venv
	for name in $(BENCHES); do $(BIN)/psflow bench $$name || exit 1; done
	$(BIN)/python -m benchmarks.summary runs/bench docs/benchmarks.md

# Appends the cost of a step of this commit to docs/benchmarks/ledger.csv, which .ci/run compares with; on a quiet machine
ledger: venv
	$(BIN)/python -m benchmarks.ledger --append

# TensorFlow Estimator, which the benchmarks compare with, in an environment of its own
bench-peers: $(PEERS_STAMP)

$(PEERS_STAMP):
	@"$(PEERS_PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
		{ echo "TensorFlow 2.15, the last one with the Estimator that trains with ps, needs Python 3.11, which '$(PEERS_PYTHON)' is not;" \
		"say which: make bench-peers PEERS_PYTHON=/path/to/python3.11. The benchmarks run without it, too" >&2; exit 1; }
	"$(PEERS_PYTHON)" -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check tensorflow-cpu==2.15.1
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
