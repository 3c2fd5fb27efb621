// algorithm.*: how rewards become advantages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct KlCtrlConfig {
  std::string type = "fixed";
  double kl_coef = 0.001;
  double target_kl = 0.1;
  int64_t horizon = 10000;

  template <class V>
  void fields(V&& v) {
    v("type", type, "how the weight of KL in the reward moves: not at all, or towards target_kl",
      {"fixed", "adaptive"});
    v("kl_coef", kl_coef, "that weight; adaptive: the first one");
    v("target_kl", target_kl, "adaptive: the KL a token that is aimed at");
    v("horizon", horizon, "adaptive: samples over which the weight moves by at most a fifth");
  }
};

struct FilterGroupsConfig {
  bool enable = false;
  std::optional<std::string> metric;
  int64_t max_num_gen_batches = 0;

  template <class V>
  void fields(V&& v) {
    v("enable", enable, "DAPO's dynamic sampling: replace groups whose samples all have the same metric");
    v("metric", metric,
      "that metric: acc, score, seq_reward, or a number the reward function returns; null: seq_reward");
    v("max_num_gen_batches", max_num_gen_batches,
      "draws a step may take before it stops with an error; 0: until the data has been through once");
  }
};

struct RolloutCorrectionConfig {
  std::optional<std::string> rollout_is;
  std::string rollout_is_threshold = "2.0";
  bool rollout_is_batch_normalize = false;
  std::optional<std::string> rollout_rs;
  std::optional<std::string> rollout_rs_threshold;
  bool bypass_mode = false;
  std::string loss_type = "ppo_clip";

  template <class V>
  void fields(V&& v) {
    v("rollout_is", rollout_is,
      "weigh the loss by how much likelier the weights before the update make a token (or, sequence: the response) "
      "than "
      "those that sampled it; exactly 1 where they are the same",
      {"token", "sequence"});
    v("rollout_is_threshold", rollout_is_threshold, "largest weight; lo_hi: weights outside become 0");
    v("rollout_is_batch_normalize", rollout_is_batch_normalize, "divide the weights by their mean");
    v("rollout_rs", rollout_rs,
      "drop tokens or responses that moved too far: token_k1, token_k2, token_k3, seq_sum_k1 ..., seq_mean_k1 ..., "
      "seq_max_k2, seq_max_k3; several with commas");
    v("rollout_rs_threshold", rollout_rs_threshold,
      "their limits: hi or lo_hi, one for all or one each; of a ratio for k1, where u means 1/u_u");
    v("bypass_mode", bypass_mode, "take the sampling's log-probs as the old ones, whatever weights drew them");
    v("loss_type", loss_type, "with bypass_mode: the policy loss as it is", {"ppo_clip"});
  }
};

struct AlgorithmConfig {
  std::string adv_estimator = "gae";
  bool norm_adv_by_std_in_grpo = true;
  double gamma = 1.0;
  double lam = 1.0;
  std::vector<std::string> gdpo_reward_keys;
  std::vector<double> gdpo_reward_weights;
  bool use_kl_in_reward = false;
  std::string kl_penalty = "kl";
  KlCtrlConfig kl_ctrl;
  FilterGroupsConfig filter_groups;
  RolloutCorrectionConfig rollout_correction;

  template <class V>
  void fields(V&& v) {
    v("adv_estimator", adv_estimator, "how advantages are estimated; gae is PPO and trains a critic",
      {"gae", "grpo", "grpo_passk", "gdpo", "rloo", "opo", "gpg", "remax", "reinforce_plus_plus",
       "reinforce_plus_plus_baseline", "optimal_token_baseline"});
    v("norm_adv_by_std_in_grpo", norm_adv_by_std_in_grpo,
      "divide by the group's standard deviation; false: Dr.GRPO, together with loss_agg_mode=seq-mean-token-sum-norm");
    v("gamma", gamma, "discount of later rewards, a token; of gae and reinforce_plus_plus");
    v("lam", lam, "GAE's lambda");
    v("gdpo_reward_keys", gdpo_reward_keys, "gdpo: the numbers of the reward function that are normalised one by one");
    v("gdpo_reward_weights", gdpo_reward_weights, "gdpo: their weights; []: 1 each");
    v("use_kl_in_reward", use_kl_in_reward, "subtract KL against the starting model from the reward");
    v("kl_penalty", kl_penalty, "estimator of that KL",
      {"kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"});
    v("kl_ctrl", kl_ctrl, "weight of that KL");
    v("filter_groups", filter_groups, "dynamic sampling");
    v("rollout_correction", rollout_correction, "for samples that other weights drew than those that train on them");
  }
};

}  // namespace tandem
