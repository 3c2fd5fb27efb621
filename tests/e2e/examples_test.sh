#!/usr/bin/env bash
# Every script under examples/, for two steps on a tiny model.
set -euo pipefail
exec python3 -B "$2/tests/e2e/examples.py" "$1/bin/tandem" "$2"
