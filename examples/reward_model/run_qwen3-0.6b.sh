#!/usr/bin/env bash
# A reward model from pairs of replies, with Qwen3-0.6B.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/reward_model/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# DATA_DIR: holds train.parquet and test.parquet (`tandem data hh_rlhf <folder with the jsonl files> --out
# ~/data/hh_rlhf` makes them). PPO or GRPO then score by it with
#   reward.reward_model.type=model
#   reward.reward_model.model_path=runs/rm-qwen3-0.6b/checkpoints/global_step_N/huggingface
# These settings on top of examples/sft/run_qwen3-0.6b.sh, which says what else the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

export TASK=reward-model DATA_DIR=${DATA_DIR:-$HOME/data/hh_rlhf} MAX_LENGTH=${MAX_LENGTH:-1024}
exec "$(dirname "$0")/../sft/run_qwen3-0.6b.sh" \
  data.truncation=left \
  trainer.project_name=rm_hh_rlhf \
  trainer.experiment_name=rm-qwen3-0.6b \
  "$@"
