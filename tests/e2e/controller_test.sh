#!/usr/bin/env bash
# The controller's traffic stays as it is from 4 to 64 stub workers; docs/scaling.md has it up to 1,024.
set -euo pipefail
exec "$1/bin/controller_bench" --workers 4,64 --steps 1 --prompts 256 --step-seconds 3 --heartbeat 1 --most-control 0.5 --check
