#!/usr/bin/env bash
# The first command a newcomer runs, for three steps on a tiny model.
set -euo pipefail
exec python3 -B "$2/tests/e2e/quickstart.py" "$1/bin/tandem"
