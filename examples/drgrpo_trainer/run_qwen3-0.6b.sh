#!/usr/bin/env bash
# Dr.GRPO (arXiv:2503.20783) on gsm8k with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/drgrpo_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# No division by the standard deviation, none by a response's length.
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  algorithm.norm_adv_by_std_in_grpo=False \
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm \
  actor_rollout_ref.actor.use_kl_loss=False \
  trainer.project_name=drgrpo_gsm8k \
  trainer.experiment_name=drgrpo-qwen3-0.6b \
  "$@"
