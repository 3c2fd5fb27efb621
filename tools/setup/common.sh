# Shared by ./dev and the set-up steps: where things are kept, and how a stage is run and reported.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${TANDEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem}
venv=$cache/venv
cuda_wheels=$cache/cuda
ray_venv=$cache/ray
demo_model=$cache/models/SmolLM2-135M-Instruct

die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# stage NAME COMMAND...: runs it with its output in a log, prints one line with the time it took, or the log's end.
stage() {
  local name=$1 log=$cache/logs/${1// /_}.log started=$SECONDS
  shift
  mkdir -p "$cache/logs"
  [ -t 1 ] && printf '%-28s ...\r' "$name"
  if "$@" >"$log" 2>&1; then
    printf '%-28s %4d s\n' "$name" $((SECONDS - started))
  else
    printf '%-28s failed after %d s\n' "$name" $((SECONDS - started)) >&2
    explain_failure "$log"
    exit 1
  fi
}

# A cut network is the usual cause, and deserves better than a traceback.
explain_failure() {
  local log=$1
  if grep -qiE 'DO NOT MATCH THE HASHES' "$log"; then
    die "a downloaded file does not match its pinned hash: it was cut or changed on the way. Run again; full log: $log"
  elif grep -qiE 'name resolution|could not resolve|network is unreachable|connection (refused|timed out|reset|broken)|failed to establish a new connection|ConnectTimeout|ReadTimeout|ProxyError|could not connect|failed to connect|Temporary failure resolving|from versions: none' "$log"; then
    die "no network to the package servers (PyPI, crates.io, Debian). Connect (or set https_proxy) and run again: what is already fetched is kept. Log: $log"
  elif grep -qi 'no space left on device' "$log"; then
    die "the disk is full. Set-up needs 4 GB in $cache (TANDEM_CACHE moves it). Log: $log"
  fi
  tail -n 25 "$log" >&2
  die "the full log is $log"
}

# with_retries COMMAND...: three tries; a download that was cut is taken up again from what is cached.
with_retries() {
  local try
  for try in 1 2 3; do
    "$@" && return 0
    [ "$try" = 3 ] || sleep $((try * 2))
  done
  return 1
}

# stamped NAME KEY COMMAND...: skips the stage when it was done before with the same key (a hash of its inputs).
stamped() {
  local name=$1 key=$2 stamp=$cache/stamps/${1// /_}
  shift 2
  if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then return 0; fi
  stage "$name" "$@"
  mkdir -p "$cache/stamps"
  printf '%s\n' "$key" >"$stamp"
}

hash_of() { cat "$@" | sha256sum | cut -c1-16; }

# version_at_least HAVE NEED
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

site_packages() {
  local found=("$venv"/lib/python3.*/site-packages)
  printf '%s' "${found[0]}"
}

# One compile job takes up to 2 GB where libtorch's headers are read.
jobs_here() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local fit=$((memory_gb / 2))
  ((fit < 1)) && fit=1
  echo $((cores < fit ? cores : fit))
}
