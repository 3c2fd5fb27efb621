#!/usr/bin/env python3
"""Makes tests/data/models/<model>/lora: adapters that Hugging Face's PEFT saved for the tiny models, and what it says of
them in float64: log-probabilities, and the gradient of one policy update.

usage: PYTHONPATH=<folder with peft> tools/references/peer_python tools/references/make_lora_fixtures.py [OUT]

PEFT is not among the peers' packages: `pip install --no-deps --target FOLDER peft==0.21.2` is enough.
"""

import pathlib
import shutil
import sys

import safetensors.torch
import torch
from peft import LoraConfig, get_peft_model

from float64_models import load_float64, write_json
from make_model_fixtures import LOSSES, forward_golden, make_batch, numbers, response_values, step_loss
from make_model_fixtures import CLIP_HIGH, CLIP_LOW, DUAL_CLIP, TEMPERATURE

LOSS = "clip_kl_entropy_seq_sum"
ADAPTERS = {
    "qwen2": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "llama_bias": dict(r=2, lora_alpha=5, target_modules=["q_proj", "k_proj", "o_proj", "up_proj"]),
    "qwen3": dict(r=8, lora_alpha=4, target_modules=["v_proj", "gate_proj", "down_proj"]),
}


def adapted(folder: pathlib.Path, settings: dict, seed: int):
    """A model whose adapters are drawn, b too, and hold values of float32."""
    torch.manual_seed(seed)
    model = get_peft_model(load_float64(folder), LoraConfig(task_type="CAUSAL_LM", **settings)).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
            if "lora_" in name:
                parameter.copy_(parameter.float().double())
    return model


def make(models: pathlib.Path, name: str, settings: dict, seed: int) -> None:
    folder = models / name / "lora"
    shutil.rmtree(folder, ignore_errors=True)
    model = adapted(models / name, settings, seed)
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder, state_dict={key: value.float() for key, value in model.state_dict().items()})
    (folder / "README.md").unlink(missing_ok=True)  # a model card
    samples = make_batch(model, seed)
    loss, _ = step_loss(model, samples, **LOSSES[LOSS])
    loss.backward()
    gradients = {key.replace(".default", ""): p.grad.float().contiguous() for key, p in model.named_parameters()
                 if p.grad is not None}
    safetensors.torch.save_file(gradients, folder / "gradient.safetensors")
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    records = []
    for sample in samples:
        with torch.no_grad():
            logprobs, _ = response_values(model, sample["prompt"], sample["response"])
        for edge in (1 - CLIP_LOW, 1 + CLIP_HIGH, DUAL_CLIP):
            ratio = torch.exp(logprobs - sample["old_logprobs"])
            assert (ratio - edge).abs().min() > 1e-4, "a ratio too near a kink: take another seed"
        records.append({"prompt_index": sample["prompt_index"], "prompt": sample["prompt"].tolist(),
                        "response": sample["response"].tolist(), "advantage": sample["advantage"],
                        "old_logprobs": numbers(sample["old_logprobs"]),
                        "ref_logprobs": numbers(sample["ref_logprobs"])})
    write_json(folder / "golden.json", {
        "temperature": TEMPERATURE, "clip_low": CLIP_LOW, "clip_high": CLIP_HIGH, "dual_clip": DUAL_CLIP,
        "sequences": [{"tokens": case["tokens"], "logprobs": case["logprobs"]} for case in forward_golden(model, seed)],
        "samples": records, "losses": {LOSS: LOSSES[LOSS] | {"loss": loss.item()}}})
    print(name, "loss", loss.item(), "tensors", len(gradients))


def main() -> None:
    default = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "models"
    models = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    torch.set_num_threads(1)
    for index, (name, settings) in enumerate(ADAPTERS.items()):
        make(models, name, settings, seed=400 + index)


if __name__ == "__main__":
    main()
