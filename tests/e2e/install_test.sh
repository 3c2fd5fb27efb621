#!/usr/bin/env bash
# An installed tree must run and serve find_package after it is moved, and load nothing from the checkout or the wheels.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/moved"
tree=$work/moved

env -i PATH=/usr/bin:/bin HOME="$work" "$tree/bin/tandem" --help >"$work/help" || { echo "the moved program does not run"; exit 1; }
grep -q train "$work/help" || { echo "the moved program's --help names no train command"; exit 1; }

# Every library it loads comes from the tree or from the system.
outside=$(env -i ldd "$tree/bin/tandem" | awk '$3 ~ /^\// {print $3}' | grep -vE "^($work/moved|/lib|/usr/lib)/" || true)
[ -z "$outside" ] || { echo "the moved program still loads from outside: $outside"; exit 1; }
! env -i ldd "$tree/bin/tandem" | grep 'not found' || { echo "the moved program misses a library"; exit 1; }

# No path of the checkout in what find_package reads.
! grep -rF "$source" "$tree/lib/cmake" || { echo "the package names the checkout"; exit 1; }

cp -r "$source/examples/embed" "$work/example"
started=$SECONDS
quietly cmake -G Ninja -S "$work/example" -B "$work/example/build" -DCMAKE_PREFIX_PATH="$tree"
quietly cmake --build "$work/example/build"
took=$((SECONDS - started))
printed=$("$work/example/build/embed")
[ "$printed" = "$(printf 'score 1\nscore 0')" ] || { echo "the example printed: $printed"; exit 1; }
[ "$took" -lt 30 ] || { echo "the example took $took s to build; at most 30 s are allowed"; exit 1; }
echo "installed tree runs after a move; the example built in $took s"
