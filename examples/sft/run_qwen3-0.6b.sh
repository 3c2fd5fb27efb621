#!/usr/bin/env bash
# Supervised fine-tuning on chats with Qwen3-0.6B. Every key is verl's; extra arguments are passed on and win.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/sft/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# TANDEM: the program (default: tandem on PATH). DATA_DIR: holds train.parquet and test.parquet
# (`tandem data ultrachat <folder with the jsonl files> --out ~/data/ultrachat` makes them). TASK: sft, or reward-model
# (examples/reward_model).
set -euo pipefail

tandem=${TANDEM:-tandem}
model_path=${MODEL_PATH:?name the folder of the model in MODEL_PATH}
data_dir=${DATA_DIR:-$HOME/data/ultrachat}
train_files=${TRAIN_FILES:-$data_dir/train.parquet}
val_files=${VAL_FILES:-$data_dir/test.parquet}

exec "$tandem" "${TASK:-sft}" \
  data.train_files="$train_files" \
  data.val_files="$val_files" \
  data.messages_key=messages \
  data.train_batch_size="${TRAIN_BATCH_SIZE:-64}" \
  data.max_length="${MAX_LENGTH:-2048}" \
  data.truncation=right \
  data.use_dynamic_bsz=True \
  data.max_token_len_per_gpu=8192 \
  model.path="$model_path" \
  model.enable_gradient_checkpointing=True \
  optim.lr=1e-5 \
  optim.lr_warmup_steps_ratio=0.03 \
  optim.lr_scheduler_type=cosine \
  optim.weight_decay=0.01 \
  optim.clip_grad=1.0 \
  trainer.logger='["console","file","tensorboard"]' \
  trainer.project_name=sft_ultrachat \
  trainer.experiment_name=sft-qwen3-0.6b \
  trainer.save_freq=100 \
  trainer.test_freq=50 \
  trainer.total_epochs=1 \
  "$@"
