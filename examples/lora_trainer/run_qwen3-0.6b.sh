#!/usr/bin/env bash
# GRPO on gsm8k with Qwen3-0.6B, training LoRA adapters (arXiv:2106.09685) instead of the model.
#
#   MODEL_PATH=~/models/Qwen3-0.6B examples/lora_trainer/run_qwen3-0.6b.sh trainer.total_epochs=1
#
# Adapters want a greater learning rate than whole weights. The KL term's reference is the model without them: no second
# copy. A checkpoint's actor/lora_adapter loads in PEFT and vLLM; `tandem convert` merges it (docs/lora.md).
# These settings on top of examples/grpo_trainer/run_qwen3-0.6b.sh, which says what the environment may hold; a later
# setting wins, and extra arguments come last.
set -euo pipefail

exec "$(dirname "$0")/../grpo_trainer/run_qwen3-0.6b.sh" \
  actor_rollout_ref.model.lora_rank=32 \
  actor_rollout_ref.model.lora_alpha=32 \
  actor_rollout_ref.model.target_modules=all-linear \
  actor_rollout_ref.actor.optim.lr=3e-5 \
  trainer.project_name=lora_gsm8k \
  trainer.experiment_name=lora-qwen3-0.6b \
  "$@"
