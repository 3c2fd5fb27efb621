#!/usr/bin/env bash
# A rank that does not come back, and later does.
set -euo pipefail
exec python3 -B "$2/tests/e2e/elastic.py" "$1/bin/tandem"
