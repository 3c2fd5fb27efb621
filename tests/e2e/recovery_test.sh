#!/usr/bin/env bash
# Workers that are lost in the middle of a run.
set -euo pipefail
exec python3 -B "$2/tests/e2e/recovery.py" "$1/bin/tandem" --jobs 2
