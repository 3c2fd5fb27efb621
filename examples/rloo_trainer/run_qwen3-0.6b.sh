#!/usr/bin/env bash
# RLOO (arXiv:2402.14740) on gsm8k with Qwen3-0.6B. Every key is verl's; extra arguments are passed on and win.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/rloo_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# Each sample against the mean of its group's others; KL is part of the reward.
# TANDEM: the program (default: tandem on PATH). DATA_DIR: holds train.parquet and test.parquet
# (`tandem data gsm8k <folder with the jsonl files> --out ~/data/gsm8k` makes them).
set -euo pipefail

tandem=${TANDEM:-tandem}
model_path=${MODEL_PATH:?name the folder of the model in MODEL_PATH}
data_dir=${DATA_DIR:-$HOME/data/gsm8k}
train_files=${TRAIN_FILES:-$data_dir/train.parquet}
val_files=${VAL_FILES:-$data_dir/test.parquet}

exec "$tandem" train \
  algorithm.adv_estimator=rloo \
  algorithm.use_kl_in_reward=True \
  algorithm.kl_penalty=kl \
  algorithm.kl_ctrl.kl_coef=0.001 \
  data.train_files="$train_files" \
  data.val_files="$val_files" \
  data.train_batch_size="${TRAIN_BATCH_SIZE:-128}" \
  data.max_prompt_length=512 \
  data.max_response_length=1024 \
  data.filter_overlong_prompts=True \
  data.truncation=error \
  +data.apply_chat_template_kwargs.enable_thinking=False \
  actor_rollout_ref.model.path="$model_path" \
  actor_rollout_ref.model.enable_gradient_checkpointing=True \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.actor.ppo_mini_batch_size="${PPO_MINI_BATCH_SIZE:-64}" \
  actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.actor.use_kl_loss=False \
  actor_rollout_ref.actor.entropy_coeff=0 \
  actor_rollout_ref.rollout.n="${ROLLOUT_N:-8}" \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
  trainer.logger='["console","file","tensorboard"]' \
  trainer.project_name=rloo_gsm8k \
  trainer.experiment_name=rloo-qwen3-0.6b \
  trainer.val_before_train=False \
  trainer.save_freq=20 \
  trainer.test_freq=5 \
  trainer.total_epochs=15 \
  "$@"
