#!/usr/bin/env python3
"""transformers' forward and backward of a policy-gradient loss on CPU in float32, without an optimizer step.

Responses are random ids: their values do not change the work. Only the logits of the response are computed, as TRL
does. `tokens` are prompt and response tokens.
"""

import time

import torch
from peer_common import encode_prompts, load_model, load_tokenizer, parse_arguments, report

MICRO_BATCH = 4

arguments = parse_arguments()
tokenizer, model = load_tokenizer(arguments.model), load_model(arguments.model).train()
encoded = encode_prompts(tokenizer, arguments)
num_samples = arguments.prompts * arguments.samples
prompt_ids = encoded["input_ids"].repeat_interleave(arguments.samples, 0)
prompt_mask = encoded["attention_mask"].repeat_interleave(arguments.samples, 0)
responses = torch.randint(100, model.config.vocab_size, (num_samples, arguments.new_tokens))
ids, mask = torch.cat((prompt_ids, responses), 1), torch.cat((prompt_mask, torch.ones_like(responses)), 1)
advantages = torch.randn(num_samples, 1)

start = time.perf_counter()
for rows in torch.arange(num_samples).split(MICRO_BATCH):
    out = model(input_ids=ids[rows], attention_mask=mask[rows], use_cache=False, logits_to_keep=arguments.new_tokens + 1)
    logprobs = torch.log_softmax(out.logits[:, :-1], -1).gather(-1, responses[rows, :, None])[..., 0]
    (-(advantages[rows] * logprobs).sum() / responses.numel()).backward()
seconds = time.perf_counter() - start
report("transformers_train", seconds, int(mask.sum()), shape=arguments.shape, micro_batch=MICRO_BATCH)
