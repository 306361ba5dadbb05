#!/bin/sh
# Looks whether the Rust at hand can build this; if not, says which version can and how to get it.
#   sh needs-rust.sh "$(cargo --version)" "$(rustc --version)"
need=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "$0")/Cargo.toml" | head -n 1)

# Whether the version in a text such as `cargo 1.63.0 (fd9c4297c 2022-07-01)` is at least the one that is needed.
enough() {
  version=${1#* }
  major=${version%%.*}
  minor=${version#*.}
  minor=${minor%%.*}
  case $major$minor in
    '' | *[!0-9]*) return 1 ;;
  esac
  [ "$major" -gt "${need%%.*}" ] || { [ "$major" -eq "${need%%.*}" ] && [ "$minor" -ge "${need##*.}" ]; }
}

for found in "$1" "$2"; do
  enough "$found" && continue
  echo "syncguard needs Rust $need or later; here is: ${found:-none}" >&2
  echo "Distributions often carry an older one. Get a current one for this user from https://rustup.rs:" >&2
  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh && . \"\$HOME/.cargo/env\"" >&2
  echo "If rustup is here already: rustup update stable" >&2
  exit 1
done
