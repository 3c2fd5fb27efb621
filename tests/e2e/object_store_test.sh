#!/usr/bin/env bash
# Checkpoints in a real server of S3's protocol; skipped with a word where none is installed.
set -euo pipefail
server=${TANDEM_MOTO_SERVER:-${TANDEM_CACHE:-$HOME/.cache/tandem}/moto/bin/moto_server}
if [ ! -x "$server" ]; then
  echo "skipped: no S3 server; python3 -m venv ~/.cache/tandem/moto && ~/.cache/tandem/moto/bin/pip install 'moto[server]'"
  exit 0
fi
exec python3 -B "$2/tests/e2e/object_store.py" "$1/bin/tandem" "$server"
