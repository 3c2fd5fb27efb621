#!/usr/bin/env bash
# Kills and faults at random moments of a run: it always ends with the weights of the undisturbed one.
set -euo pipefail
exec python3 -B "$2/tests/e2e/durability.py" "$1/bin/tandem"
