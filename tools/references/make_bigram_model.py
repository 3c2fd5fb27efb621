#!/usr/bin/env python3
"""Writes a Hugging Face folder of a model whose next-token logits are a given table.

usage: make_bigram_model.py TABLE.json FOLDER [--dtype fp32|bf16] [--layers N] [--hidden 1024|256|64]

The table: {"rows": {LAST: {NEXT: LOGIT, ...}, ...}, "otherwise": {NEXT: LOGIT, ...}, "impossible": -10000}
  LAST and NEXT are one-byte strings ("a", "\\n"), specials ("<|im_end|>") or ids ("#300"); "otherwise" (default: the eos
  token with logit 0) is what follows a token without a row; "impossible" is the logit of all that is not named.

Hidden size = vocabulary = n with an exact square root: the embedding of token i is sqrt(n) e_i, o_proj and down_proj are
0, so the final norm leaves sqrt(n) e_i, and lm_head[j, i] = L[j | i] / sqrt(n) gives L[j | i] exactly. With 1024 there
is a tokenizer (256 bytes, then <|endoftext|>, <|im_start|>, <|im_end|>); with 256 or 64 the table has only ids and the
folder no tokenizer; the last id is eos. Needs numpy only. tests/support/bigram.cc writes the same folder.
"""

import argparse
import json
import math
import pathlib

import numpy as np

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def token_id(token: str, vocab: int) -> int:
    if token.startswith("#") and len(token) > 1:
        number = int(token[1:])
    elif token in SPECIALS:
        number = 256 + SPECIALS.index(token)
    elif len(token.encode()) == 1:
        number = token.encode()[0]
    else:
        raise SystemExit(f"make_bigram_model: '{token}' is not one byte, a special or #id")
    if not 0 <= number < vocab:
        raise SystemExit(f"make_bigram_model: token '{token}' is outside the vocabulary of {vocab}")
    return number


def head_weights(table: dict, vocab: int, eos: int) -> np.ndarray:
    logits = np.full((vocab, vocab), table.get("impossible", -10000.0), np.float32)  # [next, last]
    rows = {token_id(last, vocab): row for last, row in table["rows"].items()}
    otherwise = table.get("otherwise", {f"#{eos}": 0.0})
    for last in range(vocab):
        for following, logit in rows.get(last, otherwise).items():
            logits[token_id(following, vocab), last] = logit
    return logits / np.float32(math.isqrt(vocab))


def make_tensors(head: np.ndarray, layers: int, heads: int, kv_heads: int, head_dim: int, ff: int) -> dict:
    vocab = len(head)
    random = np.random.default_rng(1)
    noise = lambda *shape: random.uniform(-0.02, 0.02, shape).astype(np.float32)
    zeros, ones = (lambda *shape: np.zeros(shape, np.float32)), np.ones(vocab, np.float32)
    tensors = {"model.embed_tokens": np.eye(vocab, dtype=np.float32) * math.isqrt(vocab), "model.norm": ones, "lm_head": head}
    for layer in range(layers):
        block = {
            "input_layernorm": ones, "post_attention_layernorm": ones,
            "self_attn.q_proj": noise(heads * head_dim, vocab), "self_attn.k_proj": noise(kv_heads * head_dim, vocab),
            "self_attn.v_proj": noise(kv_heads * head_dim, vocab), "self_attn.o_proj": zeros(vocab, heads * head_dim),
            "mlp.gate_proj": noise(ff, vocab), "mlp.up_proj": noise(ff, vocab), "mlp.down_proj": zeros(vocab, ff),
        }
        tensors |= {f"model.layers.{layer}.{name}": value for name, value in block.items()}
    return {f"{name}.weight": value for name, value in tensors.items()}


def write_safetensors(path: pathlib.Path, tensors: dict, dtype: str) -> None:
    def stored(value):
        if dtype == "fp32":
            return np.ascontiguousarray(value)
        bits = np.ascontiguousarray(value).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)

    header, at = {"__metadata__": {"format": "pt"}}, 0
    data = {name: stored(tensors[name]) for name in sorted(tensors)}
    for name, value in data.items():
        header[name] = {"dtype": {"fp32": "F32", "bf16": "BF16"}[dtype], "shape": list(value.shape),
                        "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in data.values():
            file.write(value.tobytes())


def tokenizer() -> dict:
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    vocab = {chr(byte if byte in printable else next(rest)): byte for byte in range(256)}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                 fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[])
    added = [dict(id=256 + i, content=content, **flags) for i, content in enumerate(SPECIALS)]
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                pre_tokenizer=byte_level, post_processor=None, decoder=byte_level, model=model)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--hidden", type=int, choices=[1024, 256, 64], default=1024, help="hidden size = vocabulary")
    arguments = parser.parse_args()

    vocab, heads, kv_heads, ff = arguments.hidden, 4, 2, 64
    head_dim = 64 if vocab == 1024 else vocab // heads
    eos, bos = (258, 257) if vocab == 1024 else (vocab - 1, vocab - 2)
    head = head_weights(json.loads(arguments.table.read_text()), vocab, eos)
    tensors = make_tensors(head, arguments.layers, heads, kv_heads, head_dim, ff)
    config = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=vocab, intermediate_size=ff,
        num_hidden_layers=arguments.layers, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
        max_position_embeddings=4096, rms_norm_eps=1e-12, rope_theta=10000.0, tie_word_embeddings=False, vocab_size=vocab,
        attention_bias=False, mlp_bias=False, bos_token_id=bos, eos_token_id=eos,
        torch_dtype={"fp32": "float32", "bf16": "bfloat16"}[arguments.dtype])
    files = {"config.json": config, "generation_config.json": dict(bos_token_id=bos, eos_token_id=eos)}
    if vocab == 1024:
        files["tokenizer.json"] = tokenizer()
        files["tokenizer_config.json"] = dict(
            tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=False, bos_token="<|im_start|>",
            eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=CHAT_TEMPLATE)

    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(arguments.folder / "model.safetensors", tensors, arguments.dtype)
    for name, content in files.items():
        (arguments.folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
