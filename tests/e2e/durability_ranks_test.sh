#!/usr/bin/env bash
# The same for a run of two ranks, whose checkpoints are of several files.
set -euo pipefail
exec python3 -B "$2/tests/e2e/durability.py" "$1/bin/tandem" --ranks 2 --kills 2 --faults 2
