#!/usr/bin/env bash
# The checks before a run, passing and failing; predictions and plans.
set -euo pipefail
exec python3 -B "$2/tests/e2e/preflight.py" "$1/bin/tandem"
