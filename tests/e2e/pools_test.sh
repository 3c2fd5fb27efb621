#!/usr/bin/env bash
# Roles in processes of their own.
set -euo pipefail
exec python3 -B "$2/tests/e2e/pools.py" "$1/bin/tandem"
