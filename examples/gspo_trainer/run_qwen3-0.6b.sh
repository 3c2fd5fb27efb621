#!/usr/bin/env bash
# GSPO (arXiv:2507.18071) on gsm8k with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/gspo_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# The ratio is the whole response's, so its bounds are much tighter than PPO's.
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  actor_rollout_ref.actor.policy_loss.loss_mode=gspo \
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean \
  actor_rollout_ref.actor.clip_ratio_low=3e-4 \
  actor_rollout_ref.actor.clip_ratio_high=4e-4 \
  actor_rollout_ref.actor.use_kl_loss=False \
  trainer.project_name=gspo_gsm8k \
  trainer.experiment_name=gspo-qwen3-0.6b \
  "$@"
