# SPDX-License-Identifier: MIT
#
# A thin front end of CMake. `make run` and `make test` work on a fresh Debian or Ubuntu machine: they install missing packages
# if that needs no password, and nothing with RMSNORM_SETUP=off. `make help` lists the targets.

BUILD  ?= build
DIST   ?= dist
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

# Further arguments for CMake: make CMAKE_ARGS="-DRMSNORM_CUDA=on -DCMAKE_C_COMPILER=clang"
CMAKE_ARGS ?=

# The CMake target that `make` builds.
TARGET ?= all

# `make` and `make test-all` build the GPU library where nvcc is found, `make test` does not. `make run` builds it only where a
# GPU answers, and for that GPU alone. RMSNORM_CUDA=on or off overrides this.
gpu_answers = $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
run_cuda    = $(or $(RMSNORM_CUDA),$(if $(filter-out 0,$(gpu_answers)),on -DCMAKE_CUDA_ARCHITECTURES=native,off))
all_cuda    = $(or $(RMSNORM_CUDA),auto)
# `make test-all` compiles for one architecture, the GPU's if there is one, which takes half the time: a test compiles a part
# for the other one. The next `make` or `make install` compiles for all.
gpu_arch    = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd 0-9)
test_arch   = -DRMSNORM_TEST_ARCHITECTURE=$(or $(gpu_arch),90) "-DRMSNORM_TEST_DRAFTS=$(if $(gpu_arch),,$(drafts))"
# Without a GPU no kernel runs. Those of one type, another each day, are compiled as they are installed, and their machine code
# is tested; of the other types it is only tested that they compile.
drafts      = $(word $(shell expr $$(date +%s) / 86400 % 3 + 1),f16;f32 bf16;f32 bf16;f16)

settings = -DCMAKE_INSTALL_PREFIX="$(PREFIX)" -DRMSNORM_TEST_ARCHITECTURE= -DRMSNORM_TEST_DRAFTS=
# Tests and lab, which `make install` leaves out of a new build folder. `make run` builds no tests, but uses the settings of
# `make test`, so that nothing is compiled twice.
whole    = -DRMSNORM_TESTS=ON -DRMSNORM_LAB=auto
build    = scripts/build.sh "$(BUILD)" $(JOBS)

.DEFAULT_GOAL := all
.PHONY: all help run test setup-all test-all install amalgamation data format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22
	@echo "  variables: BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) JOBS=$(JOBS) RMSNORM_CUDA=$(RMSNORM_CUDA) CMAKE_ARGS=$(CMAKE_ARGS)"

all: ## build the library, the command and the tests
	@scripts/setup.sh scripts/run-packages.txt
	@$(build) $(TARGET) $(settings) $(whole) -DRMSNORM_CUDA=$(all_cuda) $(CMAKE_ARGS)

run: ## build the command, check this machine, measure it, then run the lab's experiments
	@scripts/setup.sh scripts/run-packages.txt scripts/data-packages.txt
	@$(build) rmsnorm_command $(settings) $(whole) -DRMSNORM_CUDA=$(run_cuda) $(CMAKE_ARGS)
	@echo; echo "rmsnorm check --short"; "$(BUILD)/rmsnorm" check --short
	@echo; echo "rmsnorm bench --short"; "$(BUILD)/rmsnorm" bench --short
	@echo; echo "rmsnorm lab"; exec "$(BUILD)/rmsnorm" lab

test: ## build, then test the library, the command, the lab and the installation: eight to ten minutes on two cores
	@scripts/setup.sh scripts/run-packages.txt scripts/test-packages.txt
	@$(build) all $(settings) $(whole) -DRMSNORM_CUDA=off $(CMAKE_ARGS)
	@scripts/test.sh "$(BUILD)" $(JOBS) first

setup-all: # before the tests: those that miss a tool are skipped
	@scripts/setup.sh scripts/run-packages.txt scripts/test-packages.txt scripts/packages.txt

test-all: setup-all test ## test also with sanitizers, valgrind, clang, emulated CPUs, planted mistakes, a browser, CUDA, torch
	@$(build) $(TARGET) $(settings) $(whole) -DRMSNORM_CUDA=$(all_cuda) $(test_arch) $(CMAKE_ARGS)
	@scripts/test.sh "$(BUILD)" $(JOBS) rest

# Installs what is built; in a new build folder it builds the library and the command first. Never installs packages.
install: ## install under DESTDIR PREFIX: the library and the command, with the lab if it was built
	@parts=; if [ ! -e "$(BUILD)/CMakeCache.txt" ]; then parts="-DRMSNORM_TESTS=OFF -DRMSNORM_LAB=off"; fi; \
	$(build) rmsnorm_installed $(settings) $$parts $(CMAKE_ARGS)
	@DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi

amalgamation: ## write the library as one file, dist/rmsnorm.c and dist/rmsnorm.h
	@python3 scripts/amalgamate.py "$(DIST)" && ls -l "$(DIST)/rmsnorm.c" "$(DIST)/rmsnorm.h"

data: ## install the data sets of the lab
	@scripts/setup.sh scripts/data-packages.txt

format: ## format the sources with clang-format 14
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs $$(command -v clang-format-14 || echo clang-format) -i

# Only a folder that CMake made is removed, whatever BUILD says.
clean: ## remove the build folder
	@if [ -e "$(BUILD)/CMakeCache.txt" ]; then rm -rf "$(BUILD)"; fi
