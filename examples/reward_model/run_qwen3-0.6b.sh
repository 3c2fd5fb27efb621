#!/usr/bin/env bash
# A reward model from pairs of replies, with Qwen3-0.6B. Extra arguments are passed on and win.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/reward_model/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# TANDEM: the program (default: tandem on PATH). DATA_DIR: holds train.parquet and test.parquet
# (`tandem data hh_rlhf <folder with the jsonl files> --out ~/data/hh_rlhf` makes them).
# PPO or GRPO then score by it with
#   reward.reward_model.type=model
#   reward.reward_model.model_path=runs/rm-qwen3-0.6b/checkpoints/global_step_N/huggingface
set -euo pipefail

tandem=${TANDEM:-tandem}
model_path=${MODEL_PATH:?name the folder of the model in MODEL_PATH}
data_dir=${DATA_DIR:-$HOME/data/hh_rlhf}
train_files=${TRAIN_FILES:-$data_dir/train.parquet}
val_files=${VAL_FILES:-$data_dir/test.parquet}

exec "$tandem" reward-model \
  data.train_files="$train_files" \
  data.val_files="$val_files" \
  data.train_batch_size="${TRAIN_BATCH_SIZE:-64}" \
  data.max_length="${MAX_LENGTH:-1024}" \
  data.truncation=left \
  data.use_dynamic_bsz=True \
  data.max_token_len_per_gpu=8192 \
  model.path="$model_path" \
  model.enable_gradient_checkpointing=True \
  optim.lr=1e-5 \
  optim.lr_warmup_steps_ratio=0.03 \
  optim.lr_scheduler_type=cosine \
  optim.clip_grad=1.0 \
  trainer.logger='["console","file","tensorboard"]' \
  trainer.project_name=rm_hh_rlhf \
  trainer.experiment_name=rm-qwen3-0.6b \
  trainer.save_freq=100 \
  trainer.test_freq=50 \
  trainer.total_epochs=1 \
  "$@"
