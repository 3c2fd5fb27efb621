#!/usr/bin/env bash
# Makes the Python environment of the peers (torch, transformers, trl) for CPU. It is only for making reference values
# and for benchmarks: no part of Tandem needs it to build, test or run.
#   tools/references/setup_peers.sh      then   tools/references/peer_python SCRIPT ...
# The environment is made in $TANDEM_CACHE/peers ($TANDEM_CACHE defaults to ~/.cache/tandem).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${TANDEM_CACHE:-$HOME/.cache/tandem}
peers=$cache/peers
python=${PYTHON:-python3}

[ -x "$peers/bin/python" ] || "$python" -m venv "$peers"
site=$("$peers/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
"$peers/bin/pip" install -q -r "$here/requirements.txt"
"$peers/bin/pip" install -q --no-deps -r "$here/requirements-no-deps.txt"

# torch is the wheel that Tandem is built on. When `./dev setup` has unpacked it already, link to that copy (1.2 GB).
built=$cache/venv/lib/$(basename "$(dirname "$site")")/site-packages
if [ -e "$built/torch-2.11.0.dist-info" ]; then
  for name in torch torchgen functorch nvidia torch-2.11.0.dist-info; do
    ln -sfn "$built/$name" "$site/$name"
  done
else
  "$peers/bin/pip" install -q --no-deps torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
fi

"$peers/bin/python" "$here/make_cuda_stubs.py" "$site" "$peers/lib/stubs"
"$here/peer_python" -c 'import torch, transformers, trl
print("peers ready: torch", torch.__version__, "transformers", transformers.__version__, "trl", trl.__version__)'
