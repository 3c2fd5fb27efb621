#!/usr/bin/env bash
# tandem serve from outside: what it answers, refuses and survives; a served reward model that scores a training run; the
# chat page in a headless Chromium; and well-known clients, where they are installed (python3 -m pip install openai langchain-openai, in ~/.cache/tandem/clients).
set -euo pipefail
here=$2/tests/e2e
python3 -B "$here/serve_cli.py" "$1/bin/tandem"
python3 -B "$here/serve_reward.py" "$1/bin/tandem"
python3 -B "$here/serve_chat.py" "$1/bin/tandem"
clients=${TANDEM_CACHE:-$HOME/.cache/tandem}/clients/bin/python
[ -x "$clients" ] || clients=python3
exec "$clients" -B "$here/serve_clients.py" "$1/bin/tandem"
