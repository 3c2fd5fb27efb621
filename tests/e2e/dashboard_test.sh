#!/usr/bin/env bash
# The dashboard of real runs: over HTTP, in a headless Chromium where there is one, and what a run writes for it.
set -euo pipefail
exec python3 -B "$2/tests/e2e/dashboard_cli.py" "$1/bin/tandem"
