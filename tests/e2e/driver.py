"""What the scripts that drive the built program share: x.py PROGRAM ... Standard library only."""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
REWARD = """
import os, time
def compute_score(data_source, solution_str, ground_truth, extra_info, pause=0.0):
    time.sleep(pause)
    return {"score": (sum(solution_str.encode()) % 7) / 7, "odd": len(solution_str) % 2}
def broken(data_source, solution_str, ground_truth, extra_info, pause=0.0):
    raise ValueError("no verdict today")
"""


def fail(what, text=""):
    print(f"FAILED: {what}\n{text}")
    sys.exit(1)


def expect(condition, what, text=""):
    if not condition:
        fail(what, text)


def start(*words):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2")
    return subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def run(*words, code=0):
    process = start(*words)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode == code, f"{' '.join(words)}: exit code {process.returncode}, expected {code}", output)
    return output


def refused(name, words, *parts):
    """The command fails with one line that names `parts`."""
    process = start(*words)
    output = process.communicate(timeout=100)[0]
    expect(process.returncode not in (0, -6, -11), f"{name}: exit code {process.returncode}", output)
    for part in parts:
        expect(part in output, f"{name}: '{part}' is not named", output)
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    expect(len(errors) == 1, f"{name}: expected one line of error", output)


def settings(folder, steps=8, pause=0.0, **overrides):
    values = {
        "actor_rollout_ref.model.path": "model",
        "data.train_files": "data/train.parquet",
        "data.val_files": "[]",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 256,
        "data.max_response_length": 8,
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
        "actor_rollout_ref.actor.optim.lr": 1e-3,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "algorithm.adv_estimator": "grpo",
        "reward.custom_reward_function.path": "reward.py",
        "reward.num_workers": 1,
        "trainer.default_local_dir": f"{folder}/checkpoints",
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": 1000,
        "trainer.save_freq": 2,
        "trainer.logger": "[file]",
    }
    if pause > 0:
        values["reward.custom_reward_function.reward_kwargs.pause"] = pause
    values.update({key.replace("__", "."): value for key, value in overrides.items()})
    return ["train"] + [f"{key}={value}" for key, value in values.items()]


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def in_temporary_folder(main):
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        try:
            main()
        finally:
            os.chdir("/")
