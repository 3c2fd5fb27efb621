"""Runs every example script for two steps on a tiny model: examples.py PROGRAM SOURCE. Standard library only."""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

from tiny_model import write_model

PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
# Rewards differ within nearly every group of random text.
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return {"score": (sum(solution_str.encode()) % 7) / 7, "acc": sum(solution_str.encode()) % 3}
"""
# What each must leave in its metrics, to show that its algorithm ran.
EXPECTED = {
    "ppo": ["critic/vf_loss", "critic/vf_explained_var", "critic/values/mean", "actor/reward_kl_penalty"],
    "dapo": ["training/num_gen_batches", "actor/pg_clipfrac"],
    "rloo": ["actor/reward_kl_penalty"],
    "reinforce_plus_plus": ["actor/reward_kl_penalty", "critic/returns/mean"],
    "gspo": ["actor/pg_loss"],
    "grpo": ["actor/kl_loss"],
    "lora": ["actor/kl_loss"],
    "drgrpo": ["actor/pg_loss"],
}


def fail(what, text=""):
    print(f"FAILED: {what}\n{text}")
    sys.exit(1)


def train(script, name, steps, *more):
    """Runs a script up to a step; what it leaves lies in the folder `name`."""
    env = dict(os.environ, TANDEM=PROGRAM, MODEL_PATH="model", DATA_DIR="data", TRAIN_BATCH_SIZE="4",
               PPO_MINI_BATCH_SIZE="2", ROLLOUT_N="4", OVERLONG_LEN="4", OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    words = [script, "data.max_prompt_length=256", "data.max_response_length=8", f"trainer.total_training_steps={steps}",
             "trainer.save_freq=2", "trainer.test_freq=-1", "trainer.logger=[file]", "actor_rollout_ref.actor.optim.lr=1e-3",
             "reward.custom_reward_function.path=reward.py", "reward.num_workers=1",
             f"trainer.default_local_dir={name}/checkpoints", *more]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=100)
    if done.returncode != 0:
        fail(f"{script}: exit code {done.returncode}", done.stdout)
    with open(f"{name}/metrics.jsonl", encoding="utf-8") as file:
        metrics = [json.loads(line) for line in file]
    if len(metrics) != steps:
        fail(f"{script}: {len(metrics)} steps, expected {steps}", done.stdout)
    return metrics


def run(script):
    name = os.path.basename(os.path.dirname(script)).removesuffix("_trainer")
    metrics = train(script, name, 2)
    for step in metrics:
        for key, value in step.items():
            if not isinstance(value, (int, float)) or not math.isfinite(value):
                fail(f"{script}: {key} is {value}")
    for key in EXPECTED.get(name, []):
        if key not in metrics[-1]:
            fail(f"{script}: {key} is not among the metrics", ", ".join(metrics[-1]))
    folders = sorted(os.listdir(f"{name}/checkpoints/global_step_2"))
    if ("critic" in folders) != (name == "ppo") or "actor" not in folders:
        fail(f"{script}: the checkpoint holds {folders}")
    if ("lora_adapter" in os.listdir(f"{name}/checkpoints/global_step_2/actor")) != (name == "lora"):
        fail(f"{script}: the checkpoint holds an adapter where it should not, or none where it should")
    return name


def tune(kind, data):
    """examples/sft and examples/reward_model, two steps each on data that `tandem data` made."""
    script, (command, key) = f"{SOURCE}/examples/{kind}/run_qwen3-0.6b.sh", data
    rows = [{"prompt": f"Say {i}.", "chosen": "yes " * (1 + i % 3), "rejected": "no",
             "messages": [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": f"{i}"}]}
            for i in range(16)]
    with open(f"{kind}.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    subprocess.run([PROGRAM, "data", command, "--train", f"{kind}.jsonl", "--out", f"{kind}-data"], check=True,
                   stdout=subprocess.DEVNULL)
    env = dict(os.environ, TANDEM=PROGRAM, MODEL_PATH="model", DATA_DIR=f"{kind}-data", TRAIN_BATCH_SIZE="4",
               MAX_LENGTH="256", OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    words = [script, "trainer.total_training_steps=2", f"trainer.default_local_dir={kind}/checkpoints",
             "trainer.logger=[file]"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=100)
    if done.returncode != 0:
        fail(f"{script}: exit code {done.returncode}", done.stdout)
    with open(f"{kind}/metrics.jsonl", encoding="utf-8") as file:
        metrics = [json.loads(line) for line in file]
    if len(metrics) != 2 or not all(math.isfinite(step["train/loss"]) for step in metrics) or key not in metrics[-1]:
        fail(f"{script}: metrics {metrics}", done.stdout)
    if not os.path.exists(f"{kind}/checkpoints/global_step_2/huggingface/model.safetensors"):
        fail(f"{script}: no checkpoint", done.stdout)
    return kind


def saved_files(name, step):
    folder = f"{name}/checkpoints/global_step_{step}"
    files = {}
    for path in sorted(glob.glob(f"{folder}/**", recursive=True)):
        if os.path.isfile(path) and not path.endswith("manifest.json"):
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder)] = file.read()
    return files


def resumed(script, name, *more):
    """Two steps and two more after a restart leave what four steps leave, critic, KL controller and place in the data
    included."""
    train(script, f"{name}-whole", 4, *more)
    train(script, f"{name}-parts", 2, *more)
    train(script, f"{name}-parts", 4, *more)
    whole, parts = saved_files(f"{name}-whole", 4), saved_files(f"{name}-parts", 4)
    different = [path for path in whole.keys() | parts.keys() if whole.get(path) != parts.get(path)]
    if different or "program.json" not in whole:
        fail(f"{script}: after a restart these files differ: {sorted(different)}; files {sorted(whole)}")


def main():
    write_model("model")
    with open("reward.py", "w", encoding="utf-8") as out:
        out.write(REWARD)
    subprocess.run([PROGRAM, "data", "arithmetic", "--out", "data", "--seed", "3"], check=True, stdout=subprocess.DEVNULL)
    names = [run(script) for script in sorted(glob.glob(f"{SOURCE}/examples/*_trainer/run_*.sh"))]
    names += [tune("sft", ("ultrachat", "val/loss")), tune("reward_model", ("hh_rlhf", "val/accuracy"))]
    resumed(f"{SOURCE}/examples/ppo_trainer/run_qwen3-0.6b.sh", "ppo", "algorithm.kl_ctrl.type=adaptive",
            "algorithm.kl_ctrl.horizon=100", "trainer.critic_warmup=1")
    resumed(f"{SOURCE}/examples/dapo_trainer/run_qwen3-0.6b.sh", "dapo")
    resumed(f"{SOURCE}/examples/lora_trainer/run_qwen3-0.6b.sh", "lora")
    missing = EXPECTED.keys() - set(names)
    if missing:
        fail(f"no example script for {sorted(missing)}")
    print(f"examples: {', '.join(names)}: ok")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    try:
        main()
    finally:
        os.chdir("/")
