# What people type. CMake does the work (CMakePresets.json); this file only installs what is missing first.

PRESET ?= release
BUILD  := build/$(PRESET)
CMAKE  := .venv/bin/cmake
CTEST  := .venv/bin/ctest
SOURCES = $(shell git ls-files '*.h' '*.c' '*.cpp')

.PHONY: build setup demo test asan bench format format-check clean

build: setup            ## everything, in build/release
	$(CMAKE) --preset $(PRESET)
	$(CMAKE) --build --preset $(PRESET)

setup:                  ## what this machine lacks: Debian packages, and .venv for PyPI's
	./setup.sh

demo: setup             ## a spec, compiled ahead of time, in a C program: right numbers, and its speed
	$(CMAKE) --preset release
	$(CMAKE) --build --preset release --target attnc attn_python
	examples/demo/run.sh build/release

test:                   ## all tests: lit, GoogleTest and pytest, through ctest
	./setup.sh --test
	$(CMAKE) --preset $(PRESET)
	$(CMAKE) --build --preset $(PRESET)
	$(CTEST) --preset $(PRESET)

asan:                   ## the same tests with the address and undefined-behaviour sanitizers
	$(MAKE) test PRESET=asan

bench:                  ## kernels beside their peers and the machine's limits (an hour on a quiet machine)
	./setup.sh --bench
	$(CMAKE) --preset release
	$(CMAKE) --build --preset release --target attn_python
	.venv/bin/python -m bench --page docs/performance.md --plot docs/share-of-limit.png

format:                 ## the layout of .clang-format, in place
	clang-format-22 -i $(SOURCES)

format-check:
	clang-format-22 --dry-run --Werror $(SOURCES)

clean:
	rm -rf build
