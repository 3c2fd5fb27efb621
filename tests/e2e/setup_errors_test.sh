#!/usr/bin/env bash
# Set-up says in one plain line what is missing: a tool, a version, the network; and never prints a traceback.
set -uo pipefail
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TANDEM_CACHE=$work/cache

expect() {  # expect NAME WORDS: the last run failed, and its last line holds the words
  local last
  last=$(tail -n 1 "$work/out")
  [ "$rc" = 1 ] || { echo "$1: exit code $rc, expected 1"; cat "$work/out"; exit 1; }
  [[ $last == *"$2"* ]] || { echo "$1: expected '$2' in: $last"; exit 1; }
  ! grep -q Traceback "$work/out" || { echo "$1: a traceback was printed"; cat "$work/out"; exit 1; }
}
fake() {  # fake TOOL VERSION
  printf '#!/bin/sh\necho "%s %s"\n' "$1" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
run() {
  "$@" >"$work/out" 2>&1
  rc=$?
}

mkdir "$work/bin"
fake rustc 1.63.0
run env PATH="$work/bin:$PATH" "$source/dev" setup
expect "old rustc" "rustc is 1.63.0, too old (need 1."
grep -q rustup "$work/out" || { echo "old rustc: no word on how to get a newer one"; exit 1; }
rm "$work/bin/rustc"

fake cmake 3.18.4
run env PATH="$work/bin:$PATH" "$source/dev" setup
expect "old cmake" "cmake is 3.18.4, too old (need 3.25 or newer): apt-get install cmake"
rm "$work/bin/cmake"

run env CXX=no-such-compiler "$source/dev" setup
expect "no compiler" "no-such-compiler is missing (need 12.0 or newer)"

# Nothing listens there. The environment is made offline from the interpreter itself.
run env https_proxy=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 PIP_NO_CACHE_DIR=1 \
  PIP_FIND_LINKS= PIP_INDEX_URL=https://pypi.org/simple "$source/dev" setup
expect "no network" "no network to the package servers"

run "$source/dev" biuld
expect "misspelt command" "unknown command 'biuld'"
run "$source/dev" build relase
expect "misspelt preset" "unknown preset 'relase' (known: release"
echo "set-up errors: ok"
