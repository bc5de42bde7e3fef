# Thin: sets up what is missing, then calls CMake and CTest. `make test` is all a fresh machine needs.
.PHONY: build demo test bench docs format install tsan clean
jobs := $(shell nproc)
tests := $(shell echo $$(($(jobs) * 2)))  # many tests wait more than they compute
prefix ?= /usr/local

build:
	@scripts/setup build adapters python
	@cmake --preset release > /dev/null
	@cmake --build --preset release --parallel $(jobs)

demo: build
	@build/gravac demo

# The suite in release, then under the address and undefined-behaviour sanitizers.
test: build
	@scripts/setup page
	@ctest --preset release --parallel $(tests)
	@cmake --preset asan > /dev/null
	@cmake --build --preset asan --parallel $(jobs)
	@ctest --preset asan --parallel $(tests)

tsan:
	@scripts/setup build
	@cmake --preset tsan > /dev/null
	@cmake --build --preset tsan --parallel $(jobs)
	@ctest --preset tsan --parallel $(tests)

# An hour, most of it for bench/codecs.py, which sends whole gradients of large models over a slow link.
bench: build
	@scripts/setup bench
	@cmake --preset release > /dev/null
	@cmake --build --preset release --parallel $(jobs) --target goals multi_level exchanges quantise_bench low_rank_bench
	@build/bench/goals
	@build/bench/multi_level
	@build/bench/quantise_bench
	@build/bench/low_rank_bench
	@build/bench/exchanges
	@bench/training build/gravac
	-@tests/lab build/gravac agree
	@scripts/torch2 build/venv-torch
	@PYTHONPATH=build/python build/venv-torch/bin/python bench/ddp.py
	@PYTHONPATH=build/python build/venv-torch/bin/python bench/codecs.py

install: build
	@cmake --install build --prefix $(prefix)

# Writes the tables of options, models, policies and so on into docs/, from the program's own tables.
docs: build
	@scripts/docs build/gravac docs

format:
	@scripts/setup format
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	@rm -rf build
