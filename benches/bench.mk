# `make bench` measures and writes docs/performance.md with its charts; `make bench QUICK=1` only shows that all of it runs, and
# writes to target/bench. The top Makefile includes this file.

.PHONY: bench bench-peers

# Peers that cannot be installed are named as missing in the output.
bench-peers:
	CARGO="$(CARGO)" benches/peers/setup

bench: bench-peers
	QUICK="$(QUICK)" $(CARGO) bench --quiet --all-features --bench performance
