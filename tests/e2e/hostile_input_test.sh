#!/usr/bin/env bash
# Bad files, keys, rows, rewards and flags: one line of error each.
set -euo pipefail
exec python3 -B "$2/tests/e2e/hostile_input.py" "$1/bin/tandem"
