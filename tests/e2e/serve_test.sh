#!/usr/bin/env bash
# tandem serve from outside: what it answers, refuses and survives; a served reward model that scores a training run.
set -euo pipefail
python3 -B "$2/tests/e2e/serve_cli.py" "$1/bin/tandem"
exec python3 -B "$2/tests/e2e/serve_reward.py" "$1/bin/tandem"
