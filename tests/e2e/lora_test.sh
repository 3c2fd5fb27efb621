#!/usr/bin/env bash
# LoRA by the command line: fine-tuning, sampling through adapters, merging, a killed run.
set -euo pipefail
exec python3 -B "$2/tests/e2e/lora_cli.py" "$1/bin/tandem"
