"""LoRA by the command line on a tiny model: lora_cli.py PROGRAM. Standard library only."""
import json
import os
import signal

from driver import REWARD, expect, in_temporary_folder, lines, refused, run, settings, start, wait_for_a_step, write
from tiny_model import HIDDEN, LAYERS, read_safetensors, write_model

LORA = {"actor_rollout_ref__model__lora_rank": 4, "actor_rollout_ref__actor__optim__lr": 1e-2}


def adapter_of(folder, step):
    return f"{folder}/checkpoints/global_step_{step}/actor/lora_adapter"


def adapter_bytes(folder, step):
    with open(f"{adapter_of(folder, step)}/adapter_model.safetensors", "rb") as file:
        return file.read()


def logprobs(model, *words):
    return [json.loads(line)["logprobs"] for line in run("logprobs", model, "ids.jsonl", *words).splitlines()]


def greatest_gap(a, b):
    return max(abs(x - y) for one, other in zip(a, b) for x, y in zip(one, other))


def fine_tuned():
    """An adapter learns a phrase; what samples through it and the merged model agree, and the base does not."""
    with open("chats.jsonl", "w", encoding="utf-8") as out:
        for i in range(16):
            chat = [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": "blue"}]
            out.write(json.dumps({"messages": chat}) + "\n")
    run("sft", "model.path=model", "data.train_files=chats.jsonl", "data.val_files=[]", "data.train_batch_size=8",
        "model.lora_rank=8", "model.lora_alpha=16", "optim.lr=1e-2", "trainer.total_training_steps=40",
        "trainer.total_epochs=100", "trainer.default_local_dir=sft/checkpoints", "trainer.logger=[file]")
    losses = [step["train/loss"] for step in lines("sft/metrics.jsonl")]
    expect(losses[-1] < 0.2 * losses[0], f"the loss went from {losses[0]} to {losses[-1]}")
    checkpoint = "sft/checkpoints/global_step_40"
    expect(sorted(os.listdir(checkpoint)) == ["data.json", "extra_state.json", "lora_adapter", "manifest.json",
                                              "optim.safetensors"], "the checkpoint", str(os.listdir(checkpoint)))
    tensors = read_safetensors(f"{checkpoint}/lora_adapter/adapter_model.safetensors")
    expect(len(tensors) == 2 * 7 * LAYERS, "adapter tensors", str(sorted(tensors)))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    expect(tensors[name][1] == [8, HIDDEN], "PEFT's names and shapes", str(sorted(tensors)))
    moments = read_safetensors(f"{checkpoint}/optim.safetensors")
    expect(len(moments) == 2 * len(tensors), "moments of adapters only", str(sorted(moments)))

    write("ids.jsonl", json.dumps({"input_ids": [(7 * i) % 259 for i in range(90)]}) + "\n" +
          json.dumps({"messages": [{"role": "user", "content": "say 3"}, {"role": "assistant", "content": "blue"}]}))
    base, through = logprobs("model"), logprobs("model", "--adapter", checkpoint)
    expect(greatest_gap(base, through) > 0.5, "the adapter changes nothing")
    expect(through == logprobs("model", "--adapter", f"{checkpoint}/lora_adapter", "--path", "rollout"),
           "rollout and training differ through the adapter")
    run("convert", checkpoint, "merged", "--dtype", "fp32")
    run("convert", "model", "merged_too", "--adapter", checkpoint, "--dtype", "fp32")
    expect(read_safetensors("merged/model.safetensors") == read_safetensors("merged_too/model.safetensors"),
           "both ways to merge")
    expect(greatest_gap(through, logprobs("merged")) < 1e-5, "the merged model differs from its adapter")
    prompt = write("prompt.jsonl", json.dumps({"prompt": "say 5"}))
    answer = json.loads(run("generate", "model", prompt, "--adapter", checkpoint, "--temperature", "0"))
    expect(answer["response"] == "blue", "the answer through the adapter", str(answer))
    refused("a folder without an adapter", ["logprobs", "model", "ids.jsonl", "--adapter", "model"], "--adapter=model",
            "adapter_config.json")


def trained():
    """Killed in the middle, a run ends with the very adapters of one that was not; it may start from a saved one."""
    run(*settings("whole", 4, **LORA))
    process = start(*settings("killed", 4, pause=0.05, **LORA))
    wait_for_a_step(process, "killed/metrics.jsonl")
    while not os.path.exists("killed/checkpoints/global_step_2"):
        expect(process.poll() is None, "the run ended by itself", "")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    expect(not os.path.exists("killed/checkpoints/global_step_4"), "killed too late")
    run(*settings("killed", 4, pause=0.05, **LORA))
    expect(adapter_bytes("whole", 4) == adapter_bytes("killed", 4), "a killed run ends with other adapters")
    kl = [step["actor/kl_loss"] for step in lines("whole/metrics.jsonl")]
    expect(0 <= kl[0] < kl[-1], f"KL against the model below: {kl}")
    run(*settings("further", 2, actor_rollout_ref__model__lora_adapter_path=adapter_of("whole", 4)))
    expect(adapter_bytes("further", 2) != adapter_bytes("whole", 4), "the adapter did not move")
    refused("another rank on resuming", settings("whole", 6, actor_rollout_ref__model__lora_rank=8), "lora_rank")
    refused("no adapters on resuming", settings("whole", 6), "lora_adapter", "lora_rank")
    refused("a critic's adapters", [*settings("x", 2, algorithm__adv_estimator="gae"), "critic.model.lora_rank=8"],
            "critic.model.lora_rank", "all its weights")
    run(*settings("ppo", 2, algorithm__adv_estimator="gae", actor_rollout_ref__actor__checkpoint__save_contents=
                  "[model,optimizer,extra,hf_model]", **LORA))
    folders = sorted(os.listdir("ppo/checkpoints/global_step_2/actor"))
    expect("lora_adapter" in folders and "huggingface" in folders, "hf_model saves the merged model", str(folders))


def main():
    write_model("model")
    write("reward.py", REWARD)
    run("data", "arithmetic", "--out", "data", "--seed", "3")
    fine_tuned()
    trained()
    print("lora: ok")


in_temporary_folder(main)
