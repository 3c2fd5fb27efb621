#!/usr/bin/env bash
# The dataflows of examples/dataflow, built against an installed tree, run on a tiny model.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }

quietly cmake --install "$build" --prefix "$work/tree"
cp -r "$source/examples/dataflow" "$work/example"
quietly cmake -G Ninja -S "$work/example" -B "$work/example/build" -DCMAKE_PREFIX_PATH="$work/tree"
quietly cmake --build "$work/example/build"
python3 -B -c "
import sys
sys.path.insert(0, '$source/tests/e2e')
from tiny_model import write_model
write_model('$work/model')"
for name in grpo ppo best_of_n; do
  printed=$("$work/example/build/$name" "$work/model")
  [ "$(grep -cE '^step [123] reward [0-9.e+-]+ [a-z_]+ [0-9.e+-]+$' <<<"$printed")" = 3 ] || { echo "$name printed: $printed"; exit 1; }
  statements=$(sed -n '/^int main/,$p' "$source/examples/dataflow/$name.cc" | grep -cE ';|for \(|if \(')
  [ "$statements" -le 20 ] || { echo "$name has $statements statements; at most 20 are allowed"; exit 1; }
done
echo "three dataflows built and run against an installed tree"
