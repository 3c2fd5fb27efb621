#!/usr/bin/env bash
# Processes as ranks in some of the layouts; TANDEM_PROCESS_LAYOUTS=all takes every one.
set -euo pipefail
export TANDEM_PROCESS_LAYOUTS="${TANDEM_PROCESS_LAYOUTS:-some}"
exec "$1/bin/engine_test" --gtest_filter='*ProcessLayoutTest*' --gtest_brief=1
