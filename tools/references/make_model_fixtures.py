#!/usr/bin/env python3
"""Makes tests/data/models: tiny random models and what transformers says of them in float64.

usage: tools/references/peer_python tools/references/make_model_fixtures.py [OUT]

Every forward pass is of one unpadded sequence, so that nothing but the model decides the values.
"""

import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from float64_models import load_float64, write_json

VOCAB = 96
SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=2)
# Of the four frequencies of head_dim 8, one stays, one is blended and two are divided by 4.
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
PLAIN_ROPE = dict(rope_type="default", rope_theta=10000.0)
MODELS = {
    "llama_tied": LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True),
    "llama_bias": LlamaConfig(**SHAPE, rope_parameters=PLAIN_ROPE, attention_bias=True, mlp_bias=True,
                              rms_norm_eps=1e-5),
    "qwen2": Qwen2Config(**SHAPE, rope_parameters=PLAIN_ROPE, tie_word_embeddings=True),
    "qwen3_tied": Qwen3Config(**SHAPE, head_dim=16, rope_parameters=PLAIN_ROPE, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
}
SHARDED = "llama_bias"      # saved in shards with an index
OLD_CONFIG = "qwen2"        # config.json as transformers 4 wrote it
LENGTHS = [1, 2, 7, 16, 17, 33, 40]

TEMPERATURE = 0.7
CLIP_LOW, CLIP_HIGH, DUAL_CLIP = 0.2, 0.28, 3.0
KL_COEF, ENTROPY_COEFF = 0.05, 0.01
PROMPT_LENGTHS = [5, 17]
RESPONSE_LENGTHS = [[1, 4, 9], [3, 7, 2]]
ADVANTAGES = [[1.25, -0.5, -0.75], [0.875, -1.0, 0.0]]  # the zero still counts in the denominators


def random_model(config, seed: int):
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif "embed_tokens" in name or "lm_head" in name:
                parameter.copy_(0.35 * noise)
            else:
                parameter.copy_(0.3 * noise)
    return model.eval()


def save_model(name: str, config, folder: pathlib.Path, seed: int) -> None:
    model = random_model(config, seed)
    model.save_pretrained(folder, **(dict(max_shard_size="50KB") if name == SHARDED else {}))
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": 1}) + "\n")
    if name == OLD_CONFIG:
        path = folder / "config.json"
        record = json.loads(path.read_text())
        rope = record.pop("rope_parameters")
        record |= {"rope_theta": rope["rope_theta"], "rope_scaling": None, "torch_dtype": record.pop("dtype")}
        record.pop("layer_types", None)
        path.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def numbers(tensor) -> list[float]:
    return [float(f"{value:.12g}") for value in tensor.tolist()]


def row_values(logits, token):
    """log-probability of the token and entropy, of one row of logits."""
    log_probs = torch.log_softmax(logits, -1)
    return log_probs[token], -(log_probs.exp() * log_probs).sum()


def forward_golden(model, seed: int) -> list[dict]:
    generator = torch.Generator().manual_seed(seed)
    cases = []
    for length in LENGTHS:
        tokens = torch.randint(0, VOCAB, (length,), generator=generator)
        with torch.no_grad():
            logits = model(tokens[None], use_cache=False).logits[0]
        assert logits.dtype == model.dtype
        log_probs = torch.log_softmax(logits, -1)
        cases.append({
            "tokens": tokens.tolist(),
            "logprobs": numbers(log_probs[:-1].gather(-1, tokens[1:, None])[:, 0]),
            "entropies": numbers(-(log_probs.exp() * log_probs).sum(-1)),
            "last_logits": numbers(logits[-1]),
        })
    return cases


def response_values(model, prompt, response):
    """log-probabilities and entropies of the response's tokens at TEMPERATURE."""
    tokens = torch.cat((prompt, response))
    logits = model(tokens[None], use_cache=False).logits[0] / TEMPERATURE
    rows = [row_values(logits[len(prompt) + t - 1], token) for t, token in enumerate(response.tolist())]
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


def policy_loss(logprobs, old_logprobs, advantage):
    ratio = torch.exp((logprobs - old_logprobs).clamp(-20, 20))
    unclipped = -advantage * ratio
    clipped = torch.maximum(unclipped, -advantage * ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH))
    return torch.minimum(clipped, torch.full_like(clipped, -advantage * DUAL_CLIP)) if advantage < 0 else clipped


def k3_kl(logprobs, ref_logprobs):
    gap = (ref_logprobs - logprobs).clamp(-20, 20)
    return (gap.exp() - gap - 1).clamp(-10, 10)


def aggregate(per_token: list, mode: str):
    num_tokens, num_sequences = sum(len(x) for x in per_token), len(per_token)
    if mode == "token-mean":
        return sum(x.sum() for x in per_token) / num_tokens
    if mode == "seq-mean-token-sum":
        return sum(x.sum() for x in per_token) / num_sequences
    if mode == "seq-mean-token-mean":
        return sum(x.mean() for x in per_token) / num_sequences
    return sum(x.sum() for x in per_token)  # token-sum


LOSSES = {
    "clip_token_mean": dict(agg="token-mean", kl_coef=0.0, entropy_coeff=0.0),
    "clip_kl_entropy_seq_sum": dict(agg="seq-mean-token-sum", kl_coef=KL_COEF, entropy_coeff=ENTROPY_COEFF),
}
FORMULA = (
    "Row t of a response has the logits of the position before its token, divided by temperature. logprob and entropy "
    "are of their softmax. r = exp(logprob - old_logprob); L1 = -A r; L2 = -A clip(r, 1 - clip_low, 1 + clip_high); "
    "C = max(L1, L2); policy = min(C, -A dual_clip) where A < 0, else C. d = ref_logprob - logprob; "
    "kl = min(exp(d) - d - 1, 10). loss = agg(policy) + kl_coef agg(kl) - entropy_coeff agg(entropy). All samples count "
    "in agg: token-mean divides by all response tokens, seq-mean-token-sum and seq-mean-token-mean by all responses."
)


def make_batch(model, seed: int) -> list[dict]:
    generator = torch.Generator().manual_seed(seed)
    uniform = lambda size: torch.rand(size, generator=generator, dtype=torch.float64)
    samples = []
    for prompt_index, prompt_length in enumerate(PROMPT_LENGTHS):
        prompt = torch.randint(0, VOCAB, (prompt_length,), generator=generator)
        for length, advantage in zip(RESPONSE_LENGTHS[prompt_index], ADVANTAGES[prompt_index]):
            response = torch.randint(0, VOCAB, (length,), generator=generator)
            with torch.no_grad():
                logprobs, _ = response_values(model, prompt, response)
            gap = 0.9 * (uniform(length) - 0.5)  # log of the ratio
            if advantage < 0:
                gap[-1] = 1.5  # ratio 4.5: the dual clip
            samples.append(dict(prompt=prompt, response=response, advantage=advantage, prompt_index=prompt_index,
                                old_logprobs=logprobs - gap, ref_logprobs=logprobs + 0.6 * (uniform(length) - 0.5)))
    return samples


def step_loss(model, samples, agg, kl_coef, entropy_coeff):
    policy, kl, entropy = [], [], []
    for sample in samples:
        logprobs, entropies = response_values(model, sample["prompt"], sample["response"])
        policy.append(policy_loss(logprobs, sample["old_logprobs"], sample["advantage"]))
        kl.append(k3_kl(logprobs, sample["ref_logprobs"]))
        entropy.append(entropies)
    parts = {name: aggregate(x, agg) for name, x in dict(policy=policy, kl=kl, entropy=entropy).items()}
    return parts["policy"] + kl_coef * parts["kl"] - entropy_coeff * parts["entropy"], parts


def gradient_golden(model, folder: pathlib.Path, seed: int) -> dict:
    samples = make_batch(model, seed)
    losses = {}
    for name, settings in LOSSES.items():
        model.zero_grad()
        loss, parts = step_loss(model, samples, **settings)
        loss.backward()
        gradients = {key: p.grad for key, p in model.named_parameters()}
        file = f"grad_{name}.safetensors"
        safetensors.torch.save_file({key: g.float().contiguous() for key, g in gradients.items()}, folder / file)
        (folder / file).chmod(0o644)
        norm = torch.sqrt(sum((g**2).sum() for g in gradients.values()))
        losses[name] = settings | {"loss": loss.item(), "gradient_norm": norm.item(), "gradients": file} | {
            f"agg_{part}": value.item() for part, value in parts.items()}
    with torch.no_grad():
        by_mode = {mode: step_loss(model, samples, mode, KL_COEF, ENTROPY_COEFF)[0].item()
                   for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "token-sum")}
    records, clipped, dual = [], 0, 0
    for sample in samples:
        with torch.no_grad():
            logprobs, entropies = response_values(model, sample["prompt"], sample["response"])
        ratio = torch.exp(logprobs - sample["old_logprobs"])
        for edge in (1 - CLIP_LOW, 1 + CLIP_HIGH, DUAL_CLIP):
            assert (ratio - edge).abs().min() > 1e-4, "a ratio too near a kink: take another seed"
        a = sample["advantage"]
        clipped += int(((ratio > 1 + CLIP_HIGH) if a > 0 else (ratio < 1 - CLIP_LOW) & (a < 0)).sum())
        dual += int((ratio > DUAL_CLIP).sum()) if a < 0 else 0
        records.append({"prompt_index": sample["prompt_index"], "prompt": sample["prompt"].tolist(),
                        "response": sample["response"].tolist(), "advantage": a,
                        "old_logprobs": numbers(sample["old_logprobs"]), "ref_logprobs": numbers(sample["ref_logprobs"]),
                        "logprobs": numbers(logprobs), "entropies": numbers(entropies)})
    assert clipped > 0 and dual > 0, "nothing is clipped: take another seed"
    return {"formula": FORMULA, "temperature": TEMPERATURE, "clip_low": CLIP_LOW, "clip_high": CLIP_HIGH,
            "dual_clip": DUAL_CLIP, "num_clipped": clipped, "num_dual_clipped": dual, "samples": records, "losses": losses,
            "loss_with_kl_and_entropy": {"kl_coef": KL_COEF, "entropy_coeff": ENTROPY_COEFF, "by_agg": by_mode}}


def adamw_golden() -> dict:
    """torch.optim.AdamW after clip_grad_norm_, in float64."""
    settings = dict(lr=0.05, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    max_norm = 1.0
    generator = torch.Generator().manual_seed(7)
    draw = lambda: torch.randn(6, generator=generator, dtype=torch.float64)
    weights = torch.nn.Parameter(draw())
    optimizer = torch.optim.AdamW([weights], **settings)
    record = {"formula": "torch.optim.AdamW; the gradient is first scaled by min(1, max_norm / (norm + 1e-6))",
              **settings, "max_norm": max_norm, "initial": weights.tolist(), "steps": []}
    for scale in (2.0, 0.1, 0.3, 5.0, 0.01):
        gradient = scale * draw()
        weights.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_([weights], max_norm)
        optimizer.step()
        state = optimizer.state[weights]
        record["steps"].append({"gradient": gradient.tolist(), "norm": norm.item(), "weights": weights.tolist(),
                                "exp_avg": state["exp_avg"].tolist(), "exp_avg_sq": state["exp_avg_sq"].tolist()})
    return record


def noise_floor(folder: pathlib.Path, golden: list[dict]) -> dict:
    """How far transformers in float32 lies from the float64 values."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    gap = dict(logprobs=0.0, entropies=0.0, last_logits=0.0)
    for case in golden:
        with torch.no_grad():
            logits = model(torch.tensor(case["tokens"])[None], use_cache=False).logits[0]
        log_probs = torch.log_softmax(logits, -1)
        found = dict(last_logits=logits[-1], entropies=-(log_probs.exp() * log_probs).sum(-1),
                     logprobs=log_probs[:-1].gather(-1, torch.tensor(case["tokens"])[1:, None])[:, 0])
        for key, value in found.items():
            if len(value):
                gap[key] = max(gap[key], (value.double() - torch.tensor(case[key], dtype=torch.float64)).abs().max().item())
    return {key: float(f"{value:.2g}") for key, value in gap.items()}


def gradient_noise(folder: pathlib.Path, golden: dict) -> dict:
    """Norm of the error of transformers' float32 gradient over the gradient's norm, a loss."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    samples = [{key: torch.tensor(s[key]) if isinstance(s[key], list) else s[key] for key in s} for s in golden["samples"]]
    noise = {}
    for name, settings in LOSSES.items():
        model.zero_grad()
        step_loss(model, samples, **settings)[0].backward()
        exact = safetensors.torch.load_file(folder / golden["losses"][name]["gradients"])
        error = sum(((p.grad - exact[key]).double() ** 2).sum() for key, p in model.named_parameters()).sqrt().item()
        noise[name] = float(f"{error / golden['losses'][name]['gradient_norm']:.2g}")
    return noise


def main() -> None:
    default = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "models"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for index, (name, config) in enumerate(MODELS.items()):
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        save_model(name, config, folder, seed=100 + index)
        model = load_float64(folder)
        golden = forward_golden(model, seed=200 + index)
        gradients = gradient_golden(model, folder, seed=300 + index)
        noise = noise_floor(folder, golden) | {"gradient_relative": gradient_noise(folder, gradients)}
        write_json(folder / "golden.json", {"transformers_float32_noise": noise, "sequences": golden})
        write_json(folder / "golden_grad.json", gradients)
        print(name, json.dumps(noise), {k: round(v["gradient_norm"], 3) for k, v in gradients["losses"].items()},
              "clipped", gradients["num_clipped"], "dual", gradients["num_dual_clipped"],
              "mean entropy", round(sum(golden[-1]["entropies"]) / LENGTHS[-1], 2))
    write_json(out / "adamw.json", adamw_golden())


if __name__ == "__main__":
    main()
