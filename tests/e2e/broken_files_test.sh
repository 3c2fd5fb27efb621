#!/usr/bin/env bash
# Weights cut short, mixed up or in the wrong place, and a disk that fills while a checkpoint is written.
set -euo pipefail
exec python3 -B "$2/tests/e2e/broken_files.py" "$1/bin/tandem"
