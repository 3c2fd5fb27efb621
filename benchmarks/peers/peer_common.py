"""What the peers' benchmarks share: arguments, prompts and the line they print.

Run them with tools/references/peer_python; nothing here is part of Tandem.
"""

import argparse
import json
import os
import pathlib
import resource

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = [
    "Why is the sky blue?", "Name three kinds of trees.", "How do bees make honey?", "What is a prime number?",
    "Who wrote Romeo and Juliet?", "How far away is the moon?", "What causes the tides?", "Describe a good breakfast.",
]


def parse_arguments(new_tokens: int = 64) -> argparse.Namespace:
    cache = pathlib.Path(os.environ.get("TANDEM_CACHE", pathlib.Path.home() / ".cache" / "tandem"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=str(cache / "models" / "SmolLM2-135M-Instruct"))
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="samples of each prompt")
    parser.add_argument("--new-tokens", type=int, default=new_tokens, help="exact length of each response")
    parser.add_argument("--shape", choices=["chat", "addition"], default="chat",
                        help="chat: questions of about 38 tokens; addition: the quickstart's two-shot sums")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return arguments


def make_conversations(shape: str, count: int) -> list[list[dict]]:
    if shape == "chat":
        return [[{"role": "user", "content": QUESTIONS[i % len(QUESTIONS)]}] for i in range(count)]
    turns = [("system", "Add."), ("user", "1+1"), ("assistant", "2"), ("user", "5+3"), ("assistant", "8")]
    shots = [{"role": role, "content": content} for role, content in turns]
    return [shots + [{"role": "user", "content": f"{1 + i % 9}+{1 + (i * 4) % 9}"}] for i in range(count)]


def load_tokenizer(folder: str):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    return tokenizer


def load_model(folder: str):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")


def encode_prompts(tokenizer, arguments) -> dict:
    """Left-padded ids and mask, a row a prompt."""
    texts = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True)
             for c in make_conversations(arguments.shape, arguments.prompts)]
    return tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt")


def report(name: str, seconds: float, tokens: int, **details) -> None:
    """One JSON line. cpu_seconds are the whole process', loading included: a hint of how busy the machine was."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * 1024 / 1e9
    print(json.dumps({"name": name, "seconds": round(seconds, 2), "tokens": tokens,
                      "tokens_per_second": round(tokens / seconds, 1), "peak_rss_gb": round(peak, 2),
                      "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)} | details), flush=True)
