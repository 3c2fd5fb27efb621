#!/usr/bin/env python3
"""One step of TRL's GRPOTrainer on CPU in float32: generation, scoring, forward, backward and AdamW. `tokens` are new
tokens. For the quickstart's shape: --shape addition --new-tokens 4."""

import tempfile
import time

import datasets
import transformers
from peer_common import load_model, load_tokenizer, make_conversations, parse_arguments, report
from trl import GRPOConfig, GRPOTrainer

MICRO_BATCH = 4


class StepTimer(transformers.TrainerCallback):
    seconds = 0.0

    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds = time.perf_counter() - self.start


def reward(completions, **_) -> list[float]:
    """Any scores that differ within a group, so that no advantage is zero."""
    return [float(index % 3) for index in range(len(completions))]


arguments = parse_arguments()
tokenizer = load_tokenizer(arguments.model)
num_samples = arguments.prompts * arguments.samples
prompts = [{"prompt": c} for c in make_conversations(arguments.shape, arguments.prompts)]
timer = StepTimer()
with tempfile.TemporaryDirectory() as scratch:
    config = GRPOConfig(
        output_dir=scratch, use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, report_to=[], seed=0,
        per_device_train_batch_size=MICRO_BATCH, gradient_accumulation_steps=num_samples // MICRO_BATCH, max_steps=1,
        num_generations=arguments.samples, max_completion_length=arguments.new_tokens, temperature=1.0, beta=0.0,
        generation_kwargs={"min_new_tokens": arguments.new_tokens}, learning_rate=2e-5, save_strategy="no",
        disable_tqdm=True, logging_steps=1000)
    trainer = GRPOTrainer(model=load_model(arguments.model), reward_funcs=reward, args=config, processing_class=tokenizer,
                          train_dataset=datasets.Dataset.from_list(prompts), callbacks=[timer])
    trainer.train()
report("trl_step", timer.seconds, num_samples * arguments.new_tokens, shape=arguments.shape, micro_batch=MICRO_BATCH)
