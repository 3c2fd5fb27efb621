// Advantages that differ from token to token, in double, with sums in the order of the rows. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tandem {

enum class TokenEstimator {
  kGae,                   // generalised advantage estimation, whitened over the batch        (arXiv:1506.02438)
  kReinforcePlusPlus,     // discounted return, whitened over the batch                       (arXiv:2501.03262)
  kRemax,                 // return − reward of the prompt's greedy response                  (arXiv:2310.10505)
  kOptimalTokenBaseline,  // return − the group's return at the token, weighted by the size of the score function
};
std::optional<TokenEstimator> find_token_estimator(std::string_view name);  // verl's names

// One response. Vectors hold one value a token; what an estimator does not read may be empty. Values at masked tokens
// are never read, so they may be NaN.
struct TokenRow {
  std::vector<double> rewards;                     // the score lies on the last trained token
  std::vector<uint8_t> mask;                       // 1: a trained token
  uint32_t group = 0;                              // neighbours with the same number share a prompt
  double baseline = 0;                             // remax
  std::vector<float> values;                       // gae
  std::vector<float> logprobs, sum_squared_probs;  // optimal_token_baseline
  std::vector<float> importance_weights;           // optimal_token_baseline; empty: 1

  std::vector<double> advantages, returns;  // results; 0 at masked tokens
};

struct TokenAdvantageOptions {
  TokenEstimator estimator = TokenEstimator::kGae;
  double gamma = 1, lam = 1;  // gae; gamma also reinforce_plus_plus
};

// Masked tokens (a tool's, or rejected) are stepped over: a token's successor is the next trained one. A row without
// trained tokens gets zeros. DataError where whitening has a single token to look at.
//   gae                     δ_t = r_t + γ V_next − V_t, A_t = δ_t + γλ A_next, R_t = A_t + V_t; then A is whitened
//   reinforce_plus_plus     R_t = r_t + γ R_next, A = R whitened
//   remax                   A_t = Σ_{s ≥ t} r_s − baseline
//   optimal_token_baseline  w_t = (1 − 2 p_t + Σ p²) ρ_t², W_t = Σ_{s ≤ t} w_s, B_t = Σ R_t W_t / Σ W_t over the
//   group's
//                           responses with a trained token there; A_t = R_t − B_t, with B_t = 0 for a group of one and
//                           behind the second-longest response
void estimate_token_advantages(std::span<TokenRow> rows, const TokenAdvantageOptions& options);

}  // namespace tandem
