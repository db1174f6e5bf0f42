# railopt: `make demo` and `make test` need python3 (3.11 or newer), pip and make, nothing else.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -q
# CONSTRAINTS=FILE: versions that pip must take (make test-lowest)
INSTALL := $(PIP) install $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
PYTEST := $(PY) -m pytest -n auto --dist worksteal
TESTS  := tests/unit tests/property tests/contract
LEANING := tests/contract/test_backends.py $(addprefix tests/unit/,solver/test_fluid.py solver/test_simplex.py report/test_style.py \
  base/test_arrays.py base/test_archive.py base/test_dice.py model/test_traffic.py files/test_formats.py files/test_tabular.py)
ROOMS := tests/contract/test_backends.py $(addprefix tests/unit/,base model files policies experiments report solver/test_fluid.py solver/test_simplex.py) $(wildcard tests/unit/test_*.py)
INSTANCES := 10000
MUTANTS := 1
# hundreds of processes import the package: it is compiled once, whatever the shell says
unexport PYTHONDONTWRITEBYTECODE
TORCH_TESTS := numpy scipy numba matplotlib pytest hypothesis

.PHONY: help setup demo test test-fast test-interpreted test-newest test-lowest test-brute-force test-wheel lint bench \
  bench-gpu experiments test-browser test-torch test-vllm test-fabric proofs verified test-verified test-rdma \
  test-rdma-nightly soak test-peer-sim bench-solver docs test-docs test-examples clean
help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort

# One stamp a set of extras: a second make reuses .venv untouched until pyproject.toml changes.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "railopt needs python 3.11 or newer, found " + sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); \
	  $(PYTHON) -m pip install -q --target .tools virtualenv && PYTHONPATH=.tools $(PYTHON) -m virtualenv -q $(VENV); }
$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[solve,prove,plot]' && touch $@
$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[test]' && touch $@ $(VENV)/.base
$(VENV)/.lint: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[lint]' && touch $@

setup: $(VENV)/.base            ## create .venv and install railopt into it
demo: $(VENV)/.base             ## the main job: every policy on a skewed MoE all-to-all, bounds, gaps, a picture
	$(VENV)/bin/railopt demo
test: $(VENV)/.test             ## unit, property and contract tests; no system package, no root (RECORD=FOLDER: for test-verified)
	$(if $(RECORD),RAILOPT_RECORD="$(abspath $(RECORD))") $(PYTEST) $(if $(RECORD),-p tests.proofs.recording) $(PYTEST_ARGS) $(TESTS)
test-fast: $(VENV)/.test        ## what to run at every save: the unit tests that are not slow
	$(PYTEST) -m 'not slow' tests/unit
test-interpreted: $(VENV)/.test ## property and contract tests with no kernel compiled
	RAILOPT_COMPILE=never $(PYTEST) $(PYTEST_ARGS) -m 'not slow' tests/property tests/contract
test-newest:                    ## tests of most rooms, slow ones left out, on the newest Python of this machine, with the newest dependencies
	$(MAKE) test VENV=.cache/newest PYTHON="$$(sh tests/newest_python.sh)" TESTS="$(ROOMS)" PYTEST_ARGS="$(PYTEST_ARGS) -m 'not slow'" \
	  NUMBA_CACHE_DIR="$(CURDIR)/.cache/newest/numba"
test-lowest:                    ## tests that lean on dependencies, slow ones left out, with the lowest that pyproject.toml allows
	mkdir -p .cache && $(PYTHON) tests/lowest.py test > .cache/lowest.txt
	$(MAKE) test VENV=.cache/lowest CONSTRAINTS=.cache/lowest.txt TESTS="$(LEANING)" PYTEST_ARGS="$(PYTEST_ARGS) -m 'not slow'" \
	  NUMBA_CACHE_DIR="$(CURDIR)/.cache/lowest/numba"
test-brute-force: $(VENV)/.test ## INSTANCES=10000 tiny instances against brute force: never a wrong "proved"
	RAILOPT_INSTANCES=$(INSTANCES) $(PY) -m pytest tests/property/test_coupled_brute_force.py \
	  tests/property/test_joint.py tests/property/test_joint_optimum.py tests/property/test_local_solver.py \
	  tests/property/test_moving_brute_force.py
lint: $(VENV)/.lint             ## ruff (rules, and the format at 100 columns) and mypy --strict
	$(VENV)/bin/ruff check railopt tests experiments proofs docs/hooks.py examples
	$(VENV)/bin/ruff format --check railopt tests experiments proofs docs/hooks.py examples
	$(VENV)/bin/mypy
$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[test,docs]' && touch $@ $(VENV)/.test $(VENV)/.base
docs: $(VENV)/.docs             ## the site into out/site, to be read without a network; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "out/site/index.html"
test-docs: $(VENV)/.docs        ## every code block of the site runs; the site is whole and loads nothing from elsewhere
	NO_MKDOCS_2_WARNING=1 $(PYTEST) tests/docs --ignore tests/docs/test_examples.py
test-examples: $(VENV)/.docs    ## every script of examples/ runs
	$(PYTEST) tests/docs/test_examples.py
bench: $(VENV)/.test            ## speed as ratios against named peers, side by side, kernels compiled (BENCH_ARGS=--json for data)
	RAILOPT_COMPILE=always $(PY) -m tests.bench $(BENCH_ARGS)
bench-solver: $(VENV)/.test     ## the exact solver against its goals, its peers in the same run (BENCH_ARGS="--seed 7", --quick, --json; --help for more)
	$(PY) -m tests.bench.solver_bench $(BENCH_ARGS)
	$(PY) -m tests.bench.solver_coupled $(BENCH_ARGS)
$(VENV)/.cuda: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[test,cuda]' torch && touch $@ $(VENV)/.test $(VENV)/.base
bench-gpu: $(VENV)/.cuda        ## the planning kernels on one GPU, in a CUDA graph, against their goals and the host's plans (BENCH_ARGS=--json)
	$(PY) -m tests.bench.gpu $(BENCH_ARGS)
COQ := coq ocaml-nox ocaml-findlib libzarith-ocaml-dev
verified: $(VENV)/.base         ## railopt-verified: the checker, extracted from the Coq proofs and compiled (installs Debian's coq, ocaml and zarith as root)
	@command -v coqc >/dev/null && command -v ocamlfind >/dev/null && test -f "$$(ocamlfind query zarith 2>/dev/null)/zarith.cmxa" || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -qy --no-install-recommends $(COQ); \
	  else echo "make $@ needs coqc 8.16, ocamlfind and zarith: have root run 'apt-get install --no-install-recommends $(COQ)'," \
	    "or without root: opam install coq.8.16.1 zarith" >&2; exit 1; fi; }
	$(PY) -m railopt.symbolic.coq --build
	$(MAKE) -C proofs/verified
proofs: $(VENV)/.test verified  ## the Coq proofs: build, extract, audit, planted mutants (MUTANTS=3: every third), ties to Python (installs Debian's coq, ocaml and zarith as root)
	RAILOPT_MUTANTS=$(MUTANTS) $(PY) -m pytest tests/proofs --ignore tests/proofs/test_verified.py
	$(VENV)/bin/railopt prove --kernel
test-verified: $(VENV)/.test verified ## railopt-verified against checker.py: certificates that make test RECORD=FOLDER left there, or the kernel's own tests; mutants, damage
	$(if $(RECORD),RAILOPT_RECORD="$(abspath $(RECORD))") $(PY) -m pytest tests/proofs/test_verified.py
test-rdma: $(VENV)/.test        ## the verbs sender on libibverbs and Soft-RoCE, in a guest under qemu (installs Debian packages as root)
	tests/hardware/guest/prepare.sh .cache/guest
	$(PY) -m pytest tests/hardware -m 'not nightly and not soak'
test-rdma-nightly: $(VENV)/.test ## all scenarios of that guest, two guests, and perftest beside the sender
	tests/hardware/guest/prepare.sh .cache/guest
	$(PY) -m pytest tests/hardware -m 'not soak'
soak: $(VENV)/.test             ## SOAK_FAULTS=200 random faults in that guest, seeded with SOAK_SEED: nothing lost, nothing left
	tests/hardware/guest/prepare.sh .cache/guest
	SOAK_FAULTS=$${SOAK_FAULTS:-200} SOAK_SEED=$${SOAK_SEED:-0} $(PY) -m pytest tests/hardware -m soak
# tests/beside/: what vLLM and SGLang require, as constraints that railopt with its extras must be able to meet
BESIDE := solve,prove,plot,sweep
test-wheel: $(VENV)/.test       ## the wheel alone, then with plots, beside vLLM and SGLang, and with numpy and numba alone; wheel and sdist built twice, the same bytes
	rm -rf dist .cache/wheel && $(PIP) wheel --no-deps -w dist . && $(PY) -m venv .cache/wheel
	.cache/wheel/bin/python -m pip --disable-pip-version-check -q install dist/railopt-*.whl
	cd .cache && wheel/bin/python -P ../tests/bare.py && wheel/bin/python -c 'import railopt; assert "site-packages" in railopt.__file__'
	for pins in tests/beside/*.txt; do echo "$$pins"; .cache/wheel/bin/python -m pip --disable-pip-version-check -q install --dry-run \
	  --ignore-installed -c $$pins "$$(echo dist/railopt-*.whl)[$(BESIDE)]" || exit; done
	.cache/wheel/bin/python -m pip --disable-pip-version-check -q install "$$(echo dist/railopt-*.whl)[plot]"
	cd .cache && wheel/bin/railopt demo --figure wheel/demo.svg
	$(PIP) wheel --no-deps -w .cache/again . && cmp dist/railopt-*.whl .cache/again/railopt-*.whl
	.cache/wheel/bin/python -m pip --disable-pip-version-check -q install hatchling
	.cache/wheel/bin/python -m hatchling build -t sdist -d dist && find docs examples -exec touch {} +
	.cache/wheel/bin/python -m hatchling build -t sdist -d .cache/again && cmp dist/railopt-*.tar.gz .cache/again/railopt-*.tar.gz
	rm -rf .cache/slim .cache/again && $(PY) -m venv .cache/slim
	.cache/slim/bin/python -m pip --disable-pip-version-check -q install --no-deps dist/railopt-*.whl
	.cache/slim/bin/python -m pip --disable-pip-version-check -q install numpy numba
	cd .cache && slim/bin/python -P ../tests/slim.py
$(VENV)/.all: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[test,lint,browser,docs]' && touch $@ $(addprefix $(VENV)/.,browser docs lint test base)
$(VENV)/.browser: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e '.[test,browser,docs]' && touch $@ $(VENV)/.docs $(VENV)/.test $(VENV)/.base
test-browser: $(VENV)/.browser  ## the report and the site in headless Chromium (installs Debian's chromium and chromium-driver as root)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -qy --no-install-recommends chromium chromium-driver fonts-dejavu-core; \
	  else echo "make test-browser needs chromium and chromedriver: have root run" \
	    "'apt-get install --no-install-recommends chromium chromium-driver fonts-dejavu-core'" >&2; exit 1; fi; }
	$(PY) -m pytest tests/browser
# A build for the CPU where the index has one: plain torch brings gigabytes of CUDA packages. Beside it only what a
# training container has and what the tests import, so that the tier is installed in half a minute.
$(VENV)/.torch: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --no-compile 'torch==2.13.0+cpu' $(TORCH_TESTS) 2>/dev/null || $(INSTALL) --no-compile 'torch>=2.13' $(TORCH_TESTS)
	$(INSTALL) --no-deps -e . && touch $@
	@$(PY) -c 'import torch; print("installed: torch", torch.__version__, "with CUDA", torch.version.cuda or "of no version")'
	@$(PIP) freeze --exclude-editable | paste -sd' '
test-torch:                     ## railopt.torch on gloo processes, in an environment of its own with PyTorch (a build for the CPU where there is one)
	$(MAKE) .cache/torch/.torch VENV=.cache/torch
	.cache/torch/bin/python -m pytest $(PYTEST_ARGS) tests/torch
test-vllm:                      ## our policy and batches beside those of vLLM's wheel, of which only the Python files that need no more than PyTorch are unpacked
	$(MAKE) .cache/torch/.torch VENV=.cache/torch
	rm -rf .cache/vllm && $(PYTHON) tests/beside/vllm_wheel.py .cache/vllm
	[ ! -d .cache/vllm ] || PYTHONPATH=.cache/vllm .cache/torch/bin/python -m pytest $(PYTEST_ARGS) tests/torch/test_vllm.py tests/torch/test_vllm_batches.py
test-fabric:                    ## PyTorch's processes on a rail fabric out of network namespaces (as root; installs Debian's iproute2)
	@[ "$$(id -u)" = 0 ] || { echo "make test-fabric makes network namespaces: run it as root" >&2; exit 1; }
	@command -v ip >/dev/null && command -v tc >/dev/null || { \
	  if command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -qy --no-install-recommends iproute2; \
	  else echo "make test-fabric needs \`ip\` and \`tc\`: install iproute2" >&2; exit 1; fi; }
	$(MAKE) .cache/torch/.torch VENV=.cache/torch
	.cache/torch/bin/python -m pytest $(PYTEST_ARGS) tests/fabric
PEER_PYTHON := /usr/bin/python3
test-peer-sim: $(VENV)/.test    ## the simulator beside SimGrid on 20 matrices and 10 fabrics with leaves (installs Debian's python3-simgrid as root; PEER_PYTHON=an interpreter that has simgrid)
	@$(PEER_PYTHON) -c 'import simgrid' 2>/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { \
	  apt-get update -q && apt-get install -qy --no-install-recommends python3-simgrid; }
	$(PY) -m experiments.rails_packet_level.peer --python $(PEER_PYTHON)
	$(PY) -m experiments.rails_packet_level.leaves --python $(PEER_PYTHON)
experiments: $(VENV)/.test      ## every experiment on its small size, then the report out/report.html (FULL=--full for the papers' sizes)
	$(PY) -m experiments $(FULL)
	$(VENV)/bin/railopt sweep experiments/headline.toml -o out/headline
	$(VENV)/bin/railopt report out/headline --experiments out --figures out/figures -o out/report.html --force
clean:                          ## remove .venv and everything that was built
	rm -rf $(VENV) .tools .cache build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	$(MAKE) -C proofs/verified clean
	rm -f proofs/coq/*.vo proofs/coq/*.vos proofs/coq/*.vok proofs/coq/*.glob proofs/coq/.*.aux proofs/coq/.*.cache
	find railopt experiments -name '*.nb[ic]' -delete    # numba does not notice a change in another file's kernel
