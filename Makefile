# The house's commands. `make run` starts everything on this machine, `make test` runs all tests.

VENV := .venv
PYTEST := $(VENV)/bin/pytest
PACKAGES := shared/cotenant $(wildcard services/*/cotenant_*)

.DEFAULT_GOAL := help
.PHONY: help install run test conformance bench chaos mutation soak fuzz lint clean test-guest test-yarn docs

help:  ## show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

install: $(VENV)/.installed  ## install everything into .venv

# uv comes from the package index like everything else where the machine has none.
UV := $(shell command -v uv 2>/dev/null || echo build/uv/bin/uv)
export UV_PYTHON_DOWNLOADS := never
# Compiled here, once: where PYTHONDONTWRITEBYTECODE is set every process would compile its 500-900 modules at each start,
# which is more than half of the CPU time that the stack takes to start.

$(VENV)/.installed: Makefile pyproject.toml uv.lock shared/pyproject.toml $(wildcard services/*/pyproject.toml)
	@command -v uv >/dev/null 2>&1 || test -x build/uv/bin/uv || \
	  { python3 -m venv build/uv && build/uv/bin/pip install --quiet --disable-pip-version-check uv; }
	@$(UV) sync --quiet --frozen --all-packages --compile-bytecode
	@$(VENV)/bin/python -m compileall -q $(PACKAGES)
	@touch $@

run: install  ## start everything here, with the demonstration (FOR=90s ends by itself)
	@$(VENV)/bin/cotenant up --demo $(if $(FOR),--for $(FOR))

test: install  ## all tests but those that boot a guest or Hadoop, two at a time (JOBS=2 TESTS=tests/unit)
	$(PYTEST) $(or $(TESTS),tests) -n $(or $(JOBS),2) --dist loadgroup -m "not bench and not guest and not yarn" --ignore tests/conformance

conformance: install  ## the vectors, with a table by group (COTENANT_VECTORS names the folder)
	$(PYTEST) tests/conformance -q -rfE --no-header -p no:warnings

bench: install  ## speed and memory, one line each: name value unit
	$(VENV)/bin/python -m tests.bench

soak: install  ## many simulated runs under faults (SEEDS=200 FOR=10m JOBS=2)
	$(VENV)/bin/cotenant simulate --chaos --seeds 1..$(or $(SEEDS),200) --for $(or $(FOR),10m) -j $(or $(JOBS),2)

chaos: install  ## faults on the real stack on three servers (FOR=10m SEED=1), and a check of what its clients saw
	nice -n 19 $(VENV)/bin/cotenant bench chaos --for $(or $(FOR),10m) --seed $(or $(SEED),1)

mutation: install  ## which small changes of formulas, strategies and plugins no unit test notices (GROUP=quota-formulas JOBS=2)
	nice $(VENV)/bin/python -m tests.mutation $(GROUP) $(if $(JOBS),-j $(JOBS))

fuzz: install  ## other cases of the fuzzed cores than those of the tests (N=1000000, SERVICES="scheduler gateway")
	nice -n 19 $(VENV)/bin/python -m tests.fuzz -n $(or $(N),100000) $(SERVICES)

lint: install  ## ruff, mypy --strict, import-linter
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy $(PACKAGES) tests
	$(VENV)/bin/lint-imports

test-guest: install  ## node-executor on a mainline kernel with cgroup v2, in QEMU
	$(PYTEST) -m guest tests/guest

test-yarn: install  ## yarn-copilot against a real ResourceManager and NodeManager
	$(PYTEST) -m yarn tests/yarn

docs: install  ## write the generated reference of events
	$(VENV)/bin/python -m cotenant.reference docs

clean:  ## remove what was built or installed here
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
