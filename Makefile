# SPDX-License-Identifier: MIT
#
# A thin front of CMake: `make run` and `make test` work on a fresh Debian or Ubuntu machine. `make help` lists the rest.

BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

# More for CMake: make CMAKE_ARGS="-DRMSNORM_CUDA=on -DCMAKE_C_COMPILER=clang"
CMAKE_ARGS ?=

.DEFAULT_GOAL := all
.PHONY: all help setup configure run test install data format clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18
	@echo "  variables: BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) JOBS=$(JOBS) CMAKE_ARGS=$(CMAKE_ARGS)"

setup: ## install the packages that are missing, or say which they are
	@scripts/setup.sh scripts/packages.txt

# The generator can be chosen for a new build folder only.
configure: setup
	@mkdir -p "$(BUILD)"; generator=; \
	if [ ! -e "$(BUILD)/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator="-G Ninja"; fi; \
	cmake -S . -B "$(BUILD)" $$generator -DCMAKE_INSTALL_PREFIX="$(PREFIX)" $(CMAKE_ARGS) >"$(BUILD)/configure.log" 2>&1 \
	  || { cat "$(BUILD)/configure.log" >&2; exit 1; }

all: configure ## build the library, the command and the tests
	@cmake --build "$(BUILD)" --parallel $(JOBS)

run: all ## check this machine, measure it, then run the lab's experiments
	"$(BUILD)/rmsnorm" check --short
	"$(BUILD)/rmsnorm" bench --short
	@if "$(BUILD)/rmsnorm" lab --help >/dev/null 2>&1; then \
	  echo "$(BUILD)/rmsnorm lab"; exec "$(BUILD)/rmsnorm" lab; \
	else \
	  echo "the lab is not built: it needs OpenBLAS, zlib and jansson (libopenblas-dev zlib1g-dev libjansson-dev)"; \
	fi

test: all ## build, then run every test; the last line counts them
	@scripts/test.sh "$(BUILD)" $(JOBS)

install: all ## install under DESTDIR PREFIX
	@DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi

data: ## install the optional data sets of the lab
	@scripts/setup.sh scripts/data-packages.txt

format: ## lay the sources out with clang-format 14
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs $$(command -v clang-format-14 || echo clang-format) -i

# Only a folder that CMake made is removed, whatever BUILD says.
clean: ## remove the build folder
	@if [ -e "$(BUILD)/CMakeCache.txt" ]; then rm -rf "$(BUILD)"; fi
