# Building and running: what the other words of ./dev do.

build_dir_name() { [ "$1" = asan+ubsan ] && echo asan-ubsan || echo "$1"; }

# build_preset PRESET [TARGET...]
build_preset() {
  local preset=$1 dir
  shift
  case $preset in
    release | debug | asan+ubsan | tsan) setup_all ;;
    cuda) setup_all cuda ;;
    *) die "unknown preset '$preset' (known: release, debug, asan+ubsan, tsan, cuda)" ;;
  esac
  dir=build/$(build_dir_name "$preset")
  stamped_configure "$preset" "$dir"
  local started=$SECONDS
  # Ninja's own progress is the best progress: it is shown, not logged.
  cmake --build "$dir" -j "$(jobs_here)" ${1:+--target "$@"} || die "the build of $dir failed (errors above)"
  printf '%-28s %4d s\n' "build $preset" $((SECONDS - started))
}

# Ninja reconfigures by itself when a CMake file changes; a first configure or another cache folder needs ours.
stamped_configure() {
  local preset=$1 dir=$2 key
  key="$preset $(site_packages) ${CXX:-}"
  if [ -f "$dir/build.ninja" ] && [ "$(cat "$dir/.configured" 2>/dev/null)" = "$key" ]; then return 0; fi
  stage "configure $preset" cmake --preset "$preset" -DTANDEM_SITE_PACKAGES="$(site_packages)"
  printf '%s\n' "$key" >"$dir/.configured"
}

run_tests() {
  build_preset release
  TANDEM_DEMO_MODEL=$demo_model TANDEM_PYTHON=$venv/bin/python \
    ctest --test-dir build/release --output-on-failure -j 2 -L 'fast|e2e' "$@" ||
    die "tests failed (above). One alone: ctest --test-dir build/release -R NAME, or build/release/bin/<folder>_test --gtest_filter=..."
}

# libtorch is not instrumented, so only the programs without it say something worth hearing.
run_sanitized() {
  local preset=$1 dir folder folders tests=()
  case $preset in
    asan+ubsan) folders="base config observe text data reward control dashboard serve_http" ;;
    tsan) folders="observe data reward control dashboard serve_http" ;;  # the ones that start threads
    *) die "sanitize: give asan+ubsan or tsan" ;;
  esac
  for folder in $folders; do
    if compgen -G "tests/$folder/*_test.cc" >/dev/null; then tests+=("${folder}_test"); fi
  done
  build_preset "$preset" "${tests[@]}"
  dir=build/$(build_dir_name "$preset")
  local names
  names=$(IFS='|'; echo "${tests[*]/_test/}")
  # Arrow's wheel is not instrumented either: a vector that it fills looks overflown.
  ASAN_OPTIONS=detect_container_overflow=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TANDEM_PYTHON=$venv/bin/python \
    TSAN_OPTIONS="suppressions=$root/tools/setup/tsan.supp halt_on_error=1" \
    ctest --test-dir "$dir" --output-on-failure -j 2 -R "^($names)\$"
}

run_quickstart() {
  build_preset release tandem
  exec build/release/bin/tandem quickstart --model "$demo_model" "$@"
}

make_docs() {
  build_preset release tandem
  local page
  page=$(build/release/bin/tandem docs) || die "tandem docs failed"
  mkdir -p docs
  printf '%s\n' "$page" >docs/config.md
  python3 tools/check_links.py
}

run_benchmarks() {
  build_preset release
  [[ " $* " != *" --peers "* ]] || tools/references/setup_peers.sh
  exec benchmarks/run.py --model "$demo_model" "$@"
}

cpp_sources() { git ls-files --cached --others --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh'; }
