#!/usr/bin/env bash
# Ranks as actors of a Ray; skipped where Ray is not set up.
set -euo pipefail
exec python3 -B "$2/tests/e2e/ray_cli.py" "$1/bin/tandem" "$(sed -n 's/^TANDEM_RAY_VENV:PATH=//p' "$1/CMakeCache.txt")"
