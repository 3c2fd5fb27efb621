#!/usr/bin/env bash
# What can be seen of a run that stands, and breakpoints.
set -euo pipefail
exec python3 -B "$2/tests/e2e/debug_cli.py" "$1/bin/tandem"
