"""transformers' llama, qwen2 and qwen3 made honest in float64.

`model.double()` alone still computes norms, rotary angles and attention weights in float32. Here these two modules keep
float64, and attention is SDPA, which keeps the type of its input. Only for making reference values.
"""

import json
import math
import pathlib
import re

import torch
from transformers import AutoModelForCausalLM


def inverse_frequencies(config) -> torch.Tensor:
    """theta^(-2i/d), with Llama 3's scaling where the config asks for it; in float64."""
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    plain = [rope["rope_theta"] ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    if rope["rope_type"] == "default":
        return torch.tensor(plain, dtype=torch.float64)
    if rope["rope_type"] != "llama3":
        raise ValueError(f"no float64 reference of rope_type {rope['rope_type']}")
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    scaled = []
    for frequency in plain:
        turns = original * frequency / (2 * math.pi)  # over the original context
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return torch.tensor(scaled, dtype=torch.float64)


def rms_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def load_float64(folder) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").double().eval()
    frequencies = inverse_frequencies(model.config)
    rotary = model.model.rotary_emb
    assert torch.allclose(frequencies, rotary.inv_freq.double(), rtol=1e-6), "rope differs from transformers'"
    assert rotary.attention_scaling == 1.0

    def rotary_forward(x, position_ids):
        angles = position_ids[..., None].double() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    rotary.forward = rotary_forward
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = rms_norm.__get__(module)
    return model


def write_json(path: pathlib.Path, record) -> None:
    """Indented, with each list of numbers on one line."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    one_line = lambda match: re.sub(r"\s+", " ", match[0]).replace("[ ", "[").replace(" ]", "]")
    path.write_text(re.sub(r"\[[-+\d.e,\s]+\]", one_line, text) + "\n", encoding="utf-8")
