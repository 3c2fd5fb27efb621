// The metrics people look at first, by their names in metrics.jsonl (verl's), and what to call them.
export const GROUPS = [
  ["Learning", ["critic/score/mean", "critic/rewards/mean", "val-core", "train/loss", "val/loss", "train/accuracy", "val/accuracy",
    "response_length/mean", "response_length/clip_ratio", "actor/entropy"]],
  ["Policy", ["actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl", "actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/grad_norm",
    "actor/pg_loss", "actor/lr", "critic/vf_loss", "critic/vf_explained_var", "critic/grad_norm", "train/grad_norm", "train/lr",
    "rollout_corr/kl"]],
  ["Speed and memory", ["perf/throughput", "perf/mfu/actor", "perf/mfu/actor_infer", "perf/mfu/critic", "timing_s/step", "timing_s/gen", "timing_s/update_actor",
    "perf/cpu_memory_used_gb", "perf/max_memory_allocated_gb", "perf/total_num_tokens"]],
];

const TITLES = {
  "critic/score/mean": "Reward", "critic/rewards/mean": "Reward with penalties", "train/loss": "Loss", "val/loss": "Validation loss",
  "train/accuracy": "Accuracy", "val/accuracy": "Validation accuracy", "response_length/mean": "Response length",
  "response_length/clip_ratio": "Cut at the limit", "actor/entropy": "Entropy", "actor/kl_loss": "KL to the reference",
  "actor/reward_kl_penalty": "KL in the reward", "actor/ppo_kl": "KL of the update", "actor/pg_clipfrac": "Clip fraction",
  "actor/pg_clipfrac_lower": "Clip fraction, lower", "actor/grad_norm": "Gradient norm", "actor/pg_loss": "Policy loss",
  "actor/lr": "Learning rate", "critic/vf_loss": "Value loss", "critic/vf_explained_var": "Explained variance",
  "critic/grad_norm": "Critic's gradient norm", "train/grad_norm": "Gradient norm", "train/lr": "Learning rate",
  "rollout_corr/kl": "KL to the sampling", "perf/throughput": "Tokens a second", "perf/mfu/actor": "MFU of the update", "perf/mfu/actor_infer": "MFU of the sampling", "perf/mfu/critic": "MFU of the critic", "timing_s/step": "Seconds a step",
  "timing_s/gen": "Seconds of sampling", "timing_s/update_actor": "Seconds of the update", "perf/cpu_memory_used_gb": "Memory, GB",
  "perf/max_memory_allocated_gb": "GPU memory, GB", "perf/total_num_tokens": "Tokens a step",
};

export function titleOf(metric) {
  if (TITLES[metric]) return TITLES[metric];
  const parts = metric.split("/");
  if (parts[0] === "val-core" || parts[0] === "val-aux") return `${parts.slice(1, -2).join("/")} · ${parts.slice(-2).join(" ")}`;
  return parts.slice(1).join(" ") || metric;
}
