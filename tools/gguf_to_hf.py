#!/usr/bin/env python3
"""Turn a GGUF file of the llama architecture with a byte-level BPE vocabulary into a Hugging Face model folder.

    python tools/gguf_to_hf.py MODEL.gguf OUT_DIR [bf16|fp32]

Quantised weights are dequantised; fp32 keeps the dequantised values exactly, bf16 (the default) rounds them to nearest
even. Writes config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json (with the
chat template). Needs the packages numpy, gguf and tokenizers.
"""
import argparse
import json
import struct
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WHOLE_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
PER_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# llama.cpp names its pre-tokenisation rules; these are the ones this script knows how to express.
PRE_TOKENIZERS = {
    "smollm": lambda: [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ],
    "gpt-2": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
}


class Metadata:
    """The key-value part of a GGUF file; `model_*` keys are prefixed with the architecture's name."""

    def __init__(self, reader):
        self.fields = reader.fields
        self.architecture = self.get("general.architecture")
        if self.architecture != "llama":
            raise SystemExit(f"architecture '{self.architecture}' is not supported; only llama is")

    def get(self, key, default=None):
        return self.fields[key].contents() if key in self.fields else default

    def model(self, key, default=None):
        return self.get(f"{self.architecture}.{key}", default)

    @property
    def heads(self):
        return self.model("attention.head_count")

    @property
    def kv_heads(self):
        return self.model("attention.head_count_kv", self.heads)


def hf_name(name):
    if name in WHOLE_MODEL:
        return WHOLE_MODEL[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{PER_LAYER[part]}.{kind}"


def unpermute(weight, heads):
    """llama.cpp interleaves the two rope halves of q and k within a head; Hugging Face keeps one after the other."""
    rows_per_half = weight.shape[0] // heads // 2
    return weight.reshape(heads, rows_per_half, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def to_bf16(array):
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def load_tensors(reader, meta, dtype):
    tensors = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weight = weight.reshape([int(n) for n in reversed(tensor.shape)])
        if ".attn_q." in tensor.name:
            weight = unpermute(weight, meta.heads)
        if ".attn_k." in tensor.name:
            weight = unpermute(weight, meta.kv_heads)
        tensors[hf_name(tensor.name)] = to_bf16(weight) if dtype == "bf16" else weight
    return tensors


def write_safetensors(path, tensors, dtype):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": {"bf16": "BF16", "fp32": "F32"}[dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def shortest(value):
    """A GGUF float is 32 bits wide: 1e-5 comes back as 9.999999747378752e-06. Returns the decimal that was meant."""
    return float(str(np.float32(value)))


def model_config(meta, dtype, tied):
    width = meta.model("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": meta.model("feed_forward_length"),
        "num_hidden_layers": meta.model("block_count"),
        "num_attention_heads": meta.heads,
        "num_key_value_heads": meta.kv_heads,
        "head_dim": meta.model("rope.dimension_count", width // meta.heads),
        "max_position_embeddings": meta.model("context_length"),
        "rms_norm_eps": shortest(meta.model("attention.layer_norm_rms_epsilon", 1e-5)),
        "rope_theta": shortest(meta.model("rope.freq_base", 10000.0)),
        "vocab_size": len(meta.get("tokenizer.ggml.tokens")),
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": {"bf16": "bfloat16", "fp32": "float32"}[dtype],
        **special_ids(meta),
    }


def special_ids(meta):
    keys = {
        "bos_token_id": "bos_token_id",
        "eos_token_id": "eos_token_id",
        "pad_token_id": "padding_token_id",
        "unk_token_id": "unknown_token_id",
    }
    found = {name: meta.get(f"tokenizer.ggml.{key}") for name, key in keys.items()}
    return {name: int(value) for name, value in found.items() if value is not None}


def build_tokenizer(meta):
    kind = meta.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise SystemExit(f"tokenizer '{kind}' is not supported; only byte-level BPE (gpt2) is")
    rule = meta.get("tokenizer.ggml.pre", "gpt-2")
    if meta.get("tokenizer.ggml.add_bos_token", False):
        raise SystemExit("this tokenizer puts a BOS token before every text, which this script does not know to express")
    if rule not in PRE_TOKENIZERS:
        raise SystemExit(f"pre-tokeniser '{rule}' is not supported; known: {', '.join(PRE_TOKENIZERS)}")
    tokens, types = meta.get("tokenizer.ggml.tokens"), meta.get("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in meta.get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[rule]())
    tokenizer.decoder = decoders.ByteLevel()
    control = {gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED}
    for token, kind in zip(tokens, types):
        if kind in control:
            tokenizer.add_tokens([AddedToken(token, special=kind == gguf.TokenType.CONTROL, normalized=False)])
    return tokenizer


def tokenizer_config(meta):
    tokens = meta.get("tokenizer.ggml.tokens")
    named = {name.removesuffix("_id"): tokens[i] for name, i in special_ids(meta).items()}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta.model("context_length"),
        **named,
    }
    template = meta.get("tokenizer.chat_template")
    return config | ({"chat_template": template} if template else {})


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="GGUF (llama, byte-level BPE) to a Hugging Face model folder")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("dtype", nargs="?", default="bf16", choices=["bf16", "fp32"])
    args = parser.parse_args()

    reader = gguf.GGUFReader(args.gguf)
    meta = Metadata(reader)
    tensors = load_tensors(reader, meta, args.dtype)
    tied = "lm_head.weight" not in tensors

    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "config.json", model_config(meta, args.dtype, tied))
    write_json(args.out / "generation_config.json", special_ids(meta))
    write_json(args.out / "tokenizer_config.json", tokenizer_config(meta))
    build_tokenizer(meta).save(str(args.out / "tokenizer.json"))
    write_safetensors(args.out / "model.safetensors", tensors, args.dtype)
    values = sum(array.size for array in tensors.values())
    print(f"{args.out}: {len(tensors)} tensors, {values / 1e6:.1f} M values, {args.dtype}, tied={tied}")


if __name__ == "__main__":
    main()
