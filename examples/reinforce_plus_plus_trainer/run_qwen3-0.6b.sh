#!/usr/bin/env bash
# REINFORCE++ (arXiv:2501.03262) on gsm8k with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/reinforce_plus_plus_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# One sample a prompt will do; KL is part of the reward, token by token.
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

export ROLLOUT_N=${ROLLOUT_N:-4}
exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  algorithm.adv_estimator=reinforce_plus_plus \
  algorithm.gamma=1.0 \
  algorithm.use_kl_in_reward=True \
  algorithm.kl_penalty=kl \
  algorithm.kl_ctrl.kl_coef=0.001 \
  actor_rollout_ref.actor.use_kl_loss=False \
  trainer.project_name=reinforce_plus_plus_gsm8k \
  trainer.experiment_name=reinforce_plus_plus-qwen3-0.6b \
  "$@"
