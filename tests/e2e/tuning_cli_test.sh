#!/usr/bin/env bash
# tandem sft and tandem reward-model from outside, and a training run that the reward model scores.
set -euo pipefail
exec python3 -B "$2/tests/e2e/tuning_cli.py" "$1/bin/tandem"
