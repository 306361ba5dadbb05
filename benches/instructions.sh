#!/bin/sh
# How many instructions one lock and release costs this process, in the memory store: `sh benches/instructions.sh [FEATURES]`.
# Needs valgrind. Two runs of different lengths are compared, so that start and end do not count.
set -eu
features=testkit${1:+,$1}
program=$("${CARGO:-cargo}" bench --no-run --bench instructions --no-default-features --features "$features" --message-format=json 2>/dev/null |
  sed -n 's/.*"executable":"\([^"]*instructions[^"]*\)".*/\1/p' | tail -n 1)
count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
for hook in off hook; do
  short=$(count 1000 $hook)
  long=$(count 6000 $hook)
  echo "on_event $hook: $(((long - short) / 5000)) instructions a cycle"
done
