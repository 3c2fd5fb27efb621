#!/usr/bin/env bash
# The program from outside: training, kill and resume, interrupts, errors, and the smaller commands.
set -euo pipefail
exec python3 -B "$2/tests/e2e/train_cli.py" "$1/bin/tandem"
