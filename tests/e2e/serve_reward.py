"""A served reward model scores a training run: serve_reward.py PROGRAM. Standard library only."""
import array
import json
import math
import random

from driver import expect, in_temporary_folder, lines, run
from serve_driver import Server
from tiny_model import HIDDEN, read_safetensors, write_model, write_safetensors

STEPS = 2


def write_reward_model(folder):
    write_model(folder, seed=8)
    tensors = {name: (shape, array.array("f", data))
               for name, (_, shape, data) in read_safetensors(f"{folder}/model.safetensors").items()}
    source = random.Random(9)
    tensors["score.weight"] = ((1, HIDDEN), array.array("f", [source.gauss(0, 0.5) for _ in range(HIDDEN)]))
    tensors["score.bias"] = ((1,), array.array("f", [0.25]))
    write_safetensors(f"{folder}/model.safetensors", tensors)


def train(folder, reward_model):
    run("train", "actor_rollout_ref.model.path=model", "data.train_files=data/train.parquet", "data.val_files=[]",
        "data.train_batch_size=4", "data.max_prompt_length=256", "data.max_response_length=8",
        "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.optim.lr=1e-3", "algorithm.adv_estimator=grpo",
        f"trainer.total_training_steps={STEPS}", "trainer.total_epochs=100", "trainer.logger=[file]",
        "trainer.save_freq=-1", f"trainer.default_local_dir={folder}", f"reward.reward_model={reward_model}")
    samples = [(s["step"], s["response"], s["score"]) for s in lines(f"{folder}/samples.jsonl")]
    expect(len(samples) == 16 * STEPS, "every sample is scored", str(len(samples)))
    return sorted(samples), lines(f"{folder}/metrics.jsonl")


def endpoints(server):
    messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    raw = server.post("/classify", {"messages": messages, "use_activation": False})["data"][0]["probs"]
    expect(len(raw) == 1, "one number", str(raw))
    active = server.post("/classify", {"messages": messages})["data"][0]
    expect(abs(active["probs"][0] - 1 / (1 + math.exp(-raw[0]))) < 1e-6 and active["num_classes"] == 1,
           "vLLM's default is the logistic function", str(active))
    expect(server.post("/pooling", {"messages": messages})["data"][0]["data"] == raw, "pooling")
    pair = {"text_1": "1+1?", "text_2": "2", "use_activation": False}
    expect(server.post("/score", pair)["data"][0]["score"] == raw[0], "score")
    pairs = server.post("/score", {**pair, "text_2": ["2", "3"]})["data"]
    expect(len(pairs) == 2 and pairs[0]["score"] == raw[0] != pairs[1]["score"], "one text to two", str(pairs))
    inputs = server.post("/classify", {"input": ["ab", "cd"], "use_activation": False})["data"]
    ids = server.post("/classify", {"input": [97, 98], "use_activation": False})["data"]
    expect(inputs[0]["probs"] == ids[0]["probs"] != inputs[1]["probs"], "texts and ids", f"{inputs} {ids}")
    for body, word in (({"messages": messages[:1]}, "assistant"), ({}, "input"), ({"input": "a"}, "two tokens"),
                       ({"input": "a" * 600}, "512"), ({"input": "ab", "extra": 1}, "extra")):
        reply = server.post("/classify", body, status=400)
        expect(word in reply["error"]["message"], f"{body}: '{word}' is not named", str(reply))
    reply = server.post("/v1/chat/completions", {"messages": messages}, status=400)
    expect("/classify" in reply["error"]["message"], "a reward model does not chat", str(reply))
    expect(server.metric("tandem_scored_replies_total") == 9, "scores are counted")


def main():
    write_model("model")
    write_reward_model("judge")
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    server = Server("judge")
    endpoints(server)
    origin = f"http://{server.host}:{server.port}"
    here, _ = train("here", "{enable: true, type: model, model_path: judge}")
    there, metrics = train("there", "{type: vllm_api, endpoint: '%s/classify'}" % origin)
    expect(here == there, "a served reward model gives the scores of one in the process", f"{here[:2]}\n{there[:2]}")
    pooled, _ = train("pooled", "{type: vllm_api, endpoint: '%s/pooling'}" % origin)
    expect(here == pooled, "and so does /pooling", str(pooled[:2]))
    scored, _ = train("scored", "{type: vllm_api, endpoint: '%s/score', request_kwargs: {use_activation: false}}" % origin)
    expect(len({score for _, _, score in scored}) > 1, "scores of /score, which sees the prompt as one text", str(scored[:2]))
    for step in metrics:
        expect(0 < step["reward_server/latency_s/p50"] < 5 and step["reward_server/requests"] == 16, "latency", str(step))
        expect(0 < step["perf/reward_stall_s"] <= step["timing_s/reward"], "what the step waited for rewards", str(step))
    server.end()
    print(f"serve reward: ok (p50 {json.dumps([round(m['reward_server/latency_s/p50'], 4) for m in metrics])} s)")


in_temporary_folder(main)
