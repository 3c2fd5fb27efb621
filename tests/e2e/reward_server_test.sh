#!/usr/bin/env bash
# A reward server in its own process scores a run; one that fails or is not there ends it with one line.
set -euo pipefail
exec python3 -B "$2/tests/e2e/reward_server_cli.py" "$1/bin/tandem" "$2/tests/reward/reward_server.py"
