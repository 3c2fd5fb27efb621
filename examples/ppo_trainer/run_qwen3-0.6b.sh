#!/usr/bin/env bash
# PPO on gsm8k with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/ppo_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# A critic of the policy's size learns beside it; critic.model.path starts it from another model.
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

export ROLLOUT_N=${ROLLOUT_N:-1}
exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  algorithm.adv_estimator=gae \
  algorithm.gamma=1.0 \
  algorithm.lam=1.0 \
  algorithm.use_kl_in_reward=True \
  algorithm.kl_penalty=kl \
  algorithm.kl_ctrl.kl_coef=0.001 \
  critic.model.path="${CRITIC_PATH:-${MODEL_PATH:?name the folder of the model in MODEL_PATH}}" \
  critic.model.enable_gradient_checkpointing=True \
  critic.optim.lr=1e-5 \
  critic.use_dynamic_bsz=True \
  critic.cliprange_value=0.5 \
  trainer.critic_warmup=0 \
  actor_rollout_ref.actor.use_kl_loss=False \
  trainer.project_name=ppo_gsm8k \
  trainer.experiment_name=ppo-qwen3-0.6b \
  "$@"
