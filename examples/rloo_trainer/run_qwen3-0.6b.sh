#!/usr/bin/env bash
# RLOO (arXiv:2402.14740) on gsm8k with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/rloo_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# Each sample against the mean of its group's others; KL is part of the reward.
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  algorithm.adv_estimator=rloo \
  algorithm.use_kl_in_reward=True \
  algorithm.kl_penalty=kl \
  algorithm.kl_ctrl.kl_coef=0.001 \
  actor_rollout_ref.actor.use_kl_loss=False \
  trainer.project_name=rloo_gsm8k \
  trainer.experiment_name=rloo-qwen3-0.6b \
  "$@"
