#!/usr/bin/env bash
# DAPO (arXiv:2503.14476) on gsm8k with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/dapo_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# Clip-higher, dynamic sampling, a soft limit on the length, the loss a mean over tokens, no KL.
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  algorithm.filter_groups.enable=True \
  algorithm.filter_groups.metric=acc \
  algorithm.filter_groups.max_num_gen_batches=10 \
  reward.reward_manager.name=dapo \
  reward.reward_kwargs.overlong_buffer_cfg.enable=True \
  reward.reward_kwargs.overlong_buffer_cfg.len="${OVERLONG_LEN:-256}" \
  reward.reward_kwargs.overlong_buffer_cfg.penalty_factor=1.0 \
  actor_rollout_ref.actor.clip_ratio_low=0.2 \
  actor_rollout_ref.actor.clip_ratio_high=0.28 \
  actor_rollout_ref.actor.clip_ratio_c=10.0 \
  actor_rollout_ref.actor.loss_agg_mode=token-mean \
  actor_rollout_ref.actor.use_kl_loss=False \
  trainer.project_name=dapo_gsm8k \
  trainer.experiment_name=dapo-qwen3-0.6b \
  "$@"
