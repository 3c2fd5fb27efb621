#!/usr/bin/env bash
# A gradient that is not finite: the run ends or leaves it out, and the dump runs again.
set -euo pipefail
exec python3 -B "$2/tests/e2e/nonfinite.py" "$1/bin/tandem"
