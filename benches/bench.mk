# `make bench` measures and writes docs/performance.md with its charts; `make bench QUICK=1` only shows that all of it runs, and
# writes to target/bench. The top Makefile includes this file.

.PHONY: bench bench-peers instructions

# Peers that cannot be installed are named as missing in the output.
bench-peers:
	CARGO="$(CARGO)" BENCH_PROFILE="$(BENCH_PROFILE)" benches/peers/setup

# The cargo profile: `bench` is optimised; `dev` has been built by the tests already, and its figures are worth nothing.
BENCH_PROFILE ?= bench

bench: bench-peers ## measures, and writes docs/performance.md
	QUICK="$(QUICK)" $(CARGO) bench --quiet --profile $(BENCH_PROFILE) --all-features --bench performance

# Needs valgrind.
instructions: ## counts the instructions of a lock and a release, without and with telemetry
	CARGO="$(CARGO)" sh benches/instructions.sh
