#!/bin/sh
# Runs the tests, shows what they write, and fails if that holds a password of tests/support/common/passwords.txt, the beginning of a
# key that no output may have (canary-), or a lock id that is named as one.
# The status is otherwise that of the tests. Usage: tests/search-output.sh COMMAND...
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
{ "$@" 2>&1; echo $? >"$dir/status"; } | tee "$dir/output"
lines=$(grep -nFf "$(dirname "$0")/support/common/passwords.txt" "$dir/output" | cut -d: -f1 | head -20 | xargs)
if [ -n "$lines" ]; then
  echo "the output of the tests holds a password, in these lines: $lines" >&2
  exit 1
fi
# Keys that are canaries are named nowhere but in the code. A lock id has 22 letters as other texts have too, so only one that
# stands behind its own name is told from them.
names='lock_?id|lockId|LockId'
id='[A-Za-z0-9_-]{22}'
lines=$(grep -nE "canary-key|canary-secret|($names)\"?[(:=] *\"?$id([^A-Za-z0-9_-]|\$)" "$dir/output" | cut -d: -f1 | head -20 | xargs)
if [ -n "$lines" ]; then
  echo "the output of the tests holds a key or a lock id, in these lines: $lines" >&2
  exit 1
fi
exit "$(cat "$dir/status")"
