#!/usr/bin/env python3
"""Makes tests/data/models/smollm2/golden.json: what transformers says of SmolLM2-135M-Instruct in float64.

usage: tools/references/peer_python tools/references/make_smollm2_golden.py [MODEL_FOLDER [OUT.json]]

MODEL_FOLDER is the float32 folder that tools/gguf_to_hf.py writes.
"""

import os
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from float64_models import load_float64, write_json

NEW_TOKENS = 24
TEXTS = {
    "english": "The old lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote the weather in his log.",
    "code": "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
    "chinese": "今天天气很好，我们一起去公园散步，看见许多人在湖边拍照。",
    "numbers": "12 + 30 = 42, 7 * 8 = 56 and 1024 / 4 = 256. It costs $3.50, or about 20% less.",
}
CHATS = {
    "chat_capital": [{"role": "user", "content": "What is the capital of France, and what is it known for?"}],
    "chat_story": [{"role": "system", "content": "You are a storyteller."},
                   {"role": "user", "content": "Tell me a short story about a fox and a river."}],
    "chat_python": [{"role": "user", "content": "Write a Python function that returns the larger of two numbers."}],
}


def rounded(tensor, digits=9) -> list[float]:
    return [round(value, digits) for value in tensor.tolist()]


def logprobs_of(model, ids) -> torch.Tensor:
    """log-probability of ids[1:], each given all ids before it."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits, -1)[:-1].gather(-1, torch.tensor(ids)[1:, None])[:, 0]


def greedy(model, ids):
    """The best NEW_TOKENS tokens, their log-probabilities and how far each lies above the second best."""
    tokens, logprobs, gaps = [], [], []
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([ids + tokens]), use_cache=False).logits[0, -1]
        best = torch.log_softmax(logits, -1).topk(2)
        tokens.append(best.indices[0].item())
        logprobs.append(best.values[0])
        gaps.append(best.values[0] - best.values[1])
    return tokens, torch.stack(logprobs), torch.stack(gaps)


def main() -> None:
    cache = pathlib.Path(os.environ.get("TANDEM_CACHE", pathlib.Path.home() / ".cache" / "tandem"))
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else cache / "models" / "SmolLM2-135M-Instruct"
    default = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "models" / "smollm2" / "golden.json"
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else default
    transformers.utils.logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    exact = load_float64(folder)
    single = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()

    render = lambda chat: tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    texts = TEXTS | {name: render(chat) for name, chat in CHATS.items()}
    record = {"model": "SmolLM2-135M-Instruct, Q4_1 dequantised to float32", "texts": {}, "greedy": {}}
    worst = 0.0
    for name, text in texts.items():
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        logprobs = logprobs_of(exact, ids)
        worst = max(worst, (logprobs_of(single, ids).double() - logprobs).abs().max().item())
        messages = {"messages": CHATS[name]} if name in CHATS else {}
        record["texts"][name] = messages | {"text": text, "ids": ids, "logprobs": rounded(logprobs)}
        if name in CHATS:
            tokens, best, gaps = greedy(exact, ids)
            assert tokenizer.eos_token_id not in tokens, f"{name} ends before {NEW_TOKENS} tokens: take another prompt"
            record["greedy"][name] = {"ids": tokens, "text": tokenizer.decode(tokens), "logprobs": rounded(best),
                                      "gap_to_second": rounded(gaps)}
    record["transformers_float32_noise"] = float(f"{worst:.2g}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, record)
    for name, case in record["greedy"].items():
        print(name, repr(case["text"]), "least gap", min(case["gap_to_second"]))
    print("float32 noise", record["transformers_float32_noise"], "bytes", out.stat().st_size)


if __name__ == "__main__":
    main()
