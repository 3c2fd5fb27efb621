// algorithm.*: how rewards become advantages.
#pragma once

#include <string>

namespace tandem {

struct KlCtrlConfig {
  std::string type = "fixed";
  double kl_coef = 0.001;

  template <class V>
  void fields(V&& v) {
    v("type", type, "how the weight of KL in the reward moves", {"fixed"});
    v("kl_coef", kl_coef, "that weight");
  }
};

struct AlgorithmConfig {
  std::string adv_estimator = "grpo";
  bool norm_adv_by_std_in_grpo = true;
  double gamma = 1.0;
  double lam = 1.0;
  bool use_kl_in_reward = false;
  std::string kl_penalty = "kl";
  KlCtrlConfig kl_ctrl;

  template <class V>
  void fields(V&& v) {
    v("adv_estimator", adv_estimator, "how advantages are estimated",
      {"grpo", "grpo_passk", "rloo", "opo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"});
    v("norm_adv_by_std_in_grpo", norm_adv_by_std_in_grpo,
      "divide by the group's standard deviation; false: Dr.GRPO, together with loss_agg_mode=seq-mean-token-sum-norm");
    v("gamma", gamma, "discount of later rewards, a token");
    v("lam", lam, "GAE's lambda");
    v("use_kl_in_reward", use_kl_in_reward, "subtract KL against the starting model from the reward");
    v("kl_penalty", kl_penalty, "estimator of that KL", {"kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"});
    v("kl_ctrl", kl_ctrl, "weight of that KL");
  }
};

}  // namespace tandem
