# `make demo` and `make test` work from a bare clone: they need python3 (3.10 or newer), a C++ compiler and make.
PYTHON ?= python3
BENCH_JSON ?= benchmarks/results/latest.json

bin := .venv/bin
pip := $(bin)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One process a core, each with one thread: many tests are too small for two.
pytest := OMP_NUM_THREADS=1 $(bin)/python -m pytest -q -n auto --dist worksteal $(PYTEST_FLAGS)
gpu_pip := .venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
native_sources := CMakeLists.txt $(wildcard csrc/*.* csrc/*/*)

.DEFAULT_GOAL := help
GPU_REPORT ?= build/gpu/report.json
TORCH_INDEX ?=
TUTORIALS ?=

.PHONY: help setup test test-all test-sanitized test-gpu test-lowest wheel test-wheel soak prove bench pages lint docs demo clean

help:  ## show the targets, with rough times on two cores
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: .venv/.package  ## fill .venv with pinned tools and the package, editable; repeats only what has changed (4 min, then seconds)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.tools: pyproject.toml constraints.txt | .venv/bin/python
	$(pip) torch numpy scikit-build-core cmake ninja
	@touch $@

# Editable: src/ is used in place, csrc/ is compiled into build/ and only what changed is compiled again.
.venv/.package: .venv/.tools $(native_sources)
	$(pip) --no-build-isolation --config-settings=build-dir=build/editable -e '.[dev]'
	@touch $@ .venv/.demo

# What the demo needs, without the tools of tests and docs.
.venv/.demo: .venv/.tools $(native_sources)
	$(pip) --no-build-isolation --config-settings=build-dir=build/editable -e '.[report]'
	@touch $@

.venv/.docs: .venv/.package
	$(pip) --no-build-isolation --config-settings=build-dir=build/editable -e '.[dev,docs]'
	@touch $@

test: setup  ## the fast tests (6 min)
	$(pytest) -m 'not slow'

test-all: setup  ## all tests, also those that take minutes each (nightly CI allows 6 h)
	$(pytest)

# The C++ core with AddressSanitizer and UndefinedBehaviorSanitizer, in a library of its own that tests/sanitized.py loads. Python has
# no sanitizers, so their runtime is loaded before it. Their memory is
# no measure of ours, so tests of memory are left out. TESTS and K narrow down what runs.
TESTS ?= tests/ops
K ?= not triton and not reference and not compile and not export and not memory
test-sanitized: setup  ## the tests of ops on the C++ core with ASan and UBSan (nightly CI allows 3 h)
	$(bin)/cmake -S . -B build/sanitized -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(bin)/ninja -DCMAKE_CXX_COMPILER=g++ \
	  -DPython_EXECUTABLE=$(CURDIR)/$(bin)/python -DLINFDIST_NATIVE=ON \
	  -DCMAKE_CXX_FLAGS='-O0 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined'
	$(bin)/cmake --build build/sanitized
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2 $(bin)/python -m pytest -q -p tests.sanitized -m 'not slow' -k '$(K)' $(TESTS)

# On a GPU, in an environment of its own: torch as pip installs it by default on Linux, which is the build for CUDA, in the version that
# constraints.txt names. TORCH_INDEX names the index of another build, such as one for ROCm or for an older driver.
.venv-gpu/.package: pyproject.toml constraints.txt $(native_sources)
	$(PYTHON) -m venv .venv-gpu
	$(gpu_pip) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(gpu_pip) numpy scikit-build-core cmake ninja
	$(gpu_pip) --no-build-isolation --config-settings=build-dir=build/gpu/editable -e '.[attack,milp,sklearn]' hypothesis pytest pytest-timeout
	@touch $@

test-gpu: .venv-gpu/.package  ## the tests that need a GPU, and its speed; everything into GPU_REPORT, a file to send back
	.venv-gpu/bin/python -m tools.on_gpu --out $(GPU_REPORT)

# The lower bounds of pyproject.toml in an environment of their own, where the package is installed, not linked.
LOWEST_TESTS ?= tests/certificates tests/cli tests/exact tests/experiments/test_bench.py tests/experiments/tables/test_tune.py tests/export tests/models tests/nn tests/ops tests/recipes tests/report tests/runs tests/sklearn
lowest_pip := .venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check
.venv-lowest/.package: pyproject.toml constraints.txt constraints-lowest.txt $(native_sources) $(shell find src -name '*.*')
	$(PYTHON) -m venv .venv-lowest
	$(lowest_pip) -c constraints.txt scikit-build-core cmake ninja hypothesis pytest pytest-timeout
	$(lowest_pip) -c constraints-lowest.txt torch numpy
	$(lowest_pip) -c constraints-lowest.txt --no-build-isolation '.[milp,onnx,report,sklearn,tune]'
	@touch $@

test-lowest: .venv-lowest/.package  ## the tests of the core with the oldest versions that pyproject.toml allows (10 min)
	.venv-lowest/bin/python -m pytest -q -m 'not slow' $(LOWEST_TESTS)

wheel: setup  ## the source archive, and the wheel that is built from it for this machine, into dist/ (1 min)
	rm -rf dist
	LINFDIST_NATIVE=ON $(bin)/python -m build --no-isolation

# WHEEL names one that is there already.
test-wheel: setup $(if $(WHEEL),,wheel)  ## install the wheel into an empty environment and use it there (3 min)
	LINFDIST_TEST_WHEEL=$(or $(WHEEL),$$(ls dist/*.whl)) $(bin)/python -m pytest -q -s tests/wheel

soak: setup  ## attacks on certificates, and killed commands; counts in build/soak/soak.json (1 h)
	$(bin)/python -m tools.soak --minutes 60 --seed 0

prove:  ## compile the proofs with Coq, refuse axioms, build the proved checker into build/proofs (30 s)
	@$(MAKE) --no-print-directory -C proofs

bench: setup  ## measure the engine on this machine, into BENCH_JSON (3 min)
	@mkdir -p $(dir $(BENCH_JSON))
	$(bin)/linfdist bench --json $(BENCH_JSON)

pages: setup  ## write the generated pages, tables and pictures from results/ and docstrings (seconds)
	$(bin)/python -m tools.pages

lint: setup  ## ruff and mypy (under a minute)
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

docs: .venv/.docs  ## build the documentation into site/, follow its links; run tutorials whose code has changed (under a minute without)
	$(bin)/python -m tools.tutorials $(TUTORIALS)
	$(bin)/python -m sphinx --fail-on-warning --keep-going --quiet --doctree-dir build/docs/trees docs build/docs/site
	rm -rf site && cp -r build/docs/site site
	$(bin)/python -m tools.links site

demo: .venv/.demo  ## fetch MNIST, train mnist-quick from scratch, certify and attack all test images, report (3 to 5 minutes from a bare clone)
	$(bin)/linfdist info
	$(bin)/linfdist data fetch mnist
	$(bin)/linfdist train mnist-quick --resume
	$(bin)/linfdist evaluate runs/mnist-quick --attack pgd,strong
	$(bin)/linfdist report runs/mnist-quick

clean:  ## remove what the targets above have made
	rm -rf .venv .venv-gpu .venv-lowest build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
