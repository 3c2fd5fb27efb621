#!/usr/bin/env python3
"""transformers' generate on CPU in float32: every sample has exactly --new-tokens tokens. `tokens` are new tokens."""

import time

import torch
from peer_common import encode_prompts, load_model, load_tokenizer, parse_arguments, report

arguments = parse_arguments()
tokenizer, model = load_tokenizer(arguments.model), load_model(arguments.model).eval()
encoded = encode_prompts(tokenizer, arguments)
length = dict(max_new_tokens=arguments.new_tokens, min_new_tokens=arguments.new_tokens)
start = time.perf_counter()
with torch.no_grad():
    out = model.generate(**encoded, **length, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                         num_return_sequences=arguments.samples, pad_token_id=tokenizer.pad_token_id)
seconds = time.perf_counter() - start
num_samples, width = arguments.prompts * arguments.samples, encoded["input_ids"].shape[1]
assert out.shape == (num_samples, width + arguments.new_tokens)
report("transformers_generate", seconds, num_samples * arguments.new_tokens, shape=arguments.shape, prompt_width=width)
