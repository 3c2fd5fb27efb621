#!/usr/bin/env bash
# Steps take fewer prompts while rollout is slow.
set -euo pipefail
exec python3 -B "$2/tests/e2e/batch_size.py" "$1/bin/tandem"
