#!/usr/bin/env bash
# Every layout with threads as ranks, some with processes; TANDEM_LAYOUTS=all takes every one with processes too.
set -euo pipefail
export TANDEM_LAYOUTS="${TANDEM_LAYOUTS:-some}" OMP_WAIT_POLICY=passive
exec "$1/bin/engine_test" --gtest_filter='*Layout*' --gtest_brief=1
