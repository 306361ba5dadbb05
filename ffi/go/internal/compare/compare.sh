#!/bin/sh
# Compares a cycle of lock and release in the Go module of this tree with that of the commit BASE: `make go-compare BASE=<commit>`.
# Both link the release build of this tree's library. A Redis server on a Unix socket, and everything else, is pinned to one core.
set -eu
: "${BASE:?say what to compare with: make go-compare BASE=<commit>}"
root=$(git rev-parse --show-toplevel)
built="$root/target/release"
core=$(($(nproc) - 1))

"${CARGO:-cargo}" build --quiet --release --package syncguard-ffi --all-features --lib --manifest-path "$root/Cargo.toml" --target-dir "$root/target"
ln -sf libsyncguard.so "$built/libsyncguard.so.0"
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

case $root in *\'*) q='"' ;; *) q="'" ;; esac
export CGO_CFLAGS="$q-I$root/include$q" CGO_LDFLAGS="$q-L$built$q $q-Wl,-rpath,$built$q" GOPROXY=off GOTOOLCHAIN=local
go=${GO:-go}
build() { (cd "$1" && "$go" build -tags=syncguard_nopkgconfig -o "$dir/$3" "./internal/$2"); }
mkdir "$dir/source"
git -C "$root" archive "$BASE" ffi/go | tar -x -C "$dir/source"
build "$dir/source/ffi/go" benchcycle base
build "$root/ffi/go" benchcycle new
build "$root/ffi/go" compare compare

taskset -c "$core" redis-server --port 0 --unixsocket "$dir/socket" --save '' --appendonly no --dir "$dir" >/dev/null &
server=$!
until [ -S "$dir/socket" ]; do kill -0 "$server" && sleep 0.1; done
# With one core Go takes one processor, and the package asks for two or more.
for _ in 1 2 3; do
  GOMAXPROCS=2 taskset -c "$core" "$dir/compare" "redis+unix://$dir/socket" "$server" "$dir/base" "$dir/new"
done
