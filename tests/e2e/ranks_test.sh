#!/usr/bin/env bash
# A run of several processes from outside.
set -euo pipefail
exec python3 -B "$2/tests/e2e/ranks_cli.py" "$1/bin/tandem"
