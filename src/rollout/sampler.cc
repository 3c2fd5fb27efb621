#include "rollout/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tandem {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

struct Candidate {
  TokenId id;
  double probability;  // unnormalised
};

TokenId likeliest(std::span<const float> logits, std::span<const TokenId> barred) {
  TokenId best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if ((best < 0 || logits[i] > logits[best]) && std::find(barred.begin(), barred.end(), id) == barred.end())
      best = id;
  }
  return best;
}

// Likeliest first; of equals the lowest id.
std::vector<Candidate> narrow(std::vector<Candidate> all, const SamplingParams& params) {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
  };
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(all.size())) {
    std::nth_element(all.begin(), all.begin() + params.top_k, all.end(), likelier);
    all.resize(static_cast<size_t>(params.top_k));
  }
  std::sort(all.begin(), all.end(), likelier);
  if (params.top_p < 1.0) {
    double total = 0, sum = 0;
    for (const Candidate& c : all) total += c.probability;
    size_t keep = 0;
    while (keep < all.size() && sum < params.top_p * total) sum += all[keep++].probability;
    all.resize(std::max<size_t>(keep, 1));
  }
  if (params.min_p > 0) {
    const double least = params.min_p * all.front().probability;
    std::erase_if(all, [&](const Candidate& c) { return c.probability < least; });
  }
  return all;
}

[[noreturn]] void not_finite() {
  throw NonFiniteLogits("the model's logits are not finite; its weights are broken or training has diverged");
}
[[noreturn]] void all_barred() {
  throw DataError("every token is barred by min_tokens; lower min_tokens or set ignore_eos");
}

[[noreturn]] void nothing_left() {
  throw DataError("no token that may be drawn has any probability; lower min_tokens");
}

std::vector<float> without(std::span<const float> logits, std::span<const TokenId> barred) {
  std::vector<float> left(logits.begin(), logits.end());
  for (const TokenId id : barred)
    if (id >= 0 && id < static_cast<TokenId>(left.size())) left[static_cast<size_t>(id)] = kImpossible;
  return left;
}

TokenId draw_whole(std::span<const float> logits, float inverse, double uniform) {
  const kernels::RowStats stats = kernels::row_stats(logits, inverse, false);
  return kernels::invert_distribution(logits, inverse, stats, uniform);
}

// `top`: the greatest of `logits`; what may be drawn can lie far below what may not.
TokenId draw_narrowed(std::span<const float> logits, float inverse, float top, const SamplingParams& params,
                      double uniform) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((static_cast<double>(logits[i]) - top) * inverse);
    if (weight > 0) all.push_back({static_cast<TokenId>(i), weight});
  }
  all = narrow(std::move(all), params);
  double kept = 0;
  for (const Candidate& c : all) kept += c.probability;
  const double goal = uniform * kept;
  double sum = 0;
  for (const Candidate& c : all)
    if ((sum += c.probability) > goal) return c.id;
  return all.back().id;  // rounding left the goal just above the sum
}

}  // namespace

std::vector<TokenId> barred_ids(const SamplingParams& params, bool may_end) {
  if (may_end) return {};
  std::vector<TokenId> ids = params.stop_token_ids;
  if (!params.ignore_eos) ids.insert(ids.end(), params.eos_ids.begin(), params.eos_ids.end());
  return ids;
}

DrawnToken checked_draw(int32_t id, float logprob, float entropy) {
  if (id == -2) all_barred();
  if (id < 0 || !std::isfinite(logprob)) not_finite();
  return {id, logprob, entropy, {}};
}

namespace {

std::vector<TokenLogprob> likeliest_ids(std::span<const float> logits, const kernels::RowStats& stats,
                                        const SamplingParams& params, int64_t num_drawable) {
  const auto inverse = static_cast<float>(1.0 / params.effective_temperature());
  const int64_t size = std::min<int64_t>(num_drawable, std::ssize(logits)),
                wanted = std::min(params.top_logprobs, size);
  std::vector<TokenId> ids(static_cast<size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + wanted, ids.end(),
                    [&](TokenId a, TokenId b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<TokenLogprob> top;
  for (int64_t i = 0; i < wanted; ++i) top.push_back({ids[i], kernels::logprob(logits, ids[i], inverse, stats)});
  return top;
}

}  // namespace

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, const SamplingParams& params,
                                       int64_t num_drawable) {
  const auto inverse = static_cast<float>(1.0 / params.effective_temperature());
  return likeliest_ids(logits, kernels::row_stats(logits, inverse, false), params, num_drawable);
}

DrawnToken draw_token(std::span<const float> logits, const SamplingParams& params, int64_t num_drawable, bool may_end,
                      double uniform) {
  const auto inverse = static_cast<float>(1.0 / params.effective_temperature());
  return draw_token(logits, kernels::row_stats(logits, inverse, true), params, num_drawable, may_end, uniform);
}

DrawnToken draw_token(std::span<const float> logits, const kernels::RowStats& stats, const SamplingParams& params,
                      int64_t num_drawable, bool may_end, double uniform) {
  const auto inverse = static_cast<float>(1.0 / params.effective_temperature());
  const auto require_finite = [](bool finite) {
    if (!finite) not_finite();
  };
  require_finite(std::isfinite(stats.max) && std::isfinite(stats.log_sum));
  const auto drawable = logits.first(static_cast<size_t>(std::min<int64_t>(num_drawable, logits.size())));
  const std::vector<TokenId> barred = barred_ids(params, may_end);
  const auto finish = [&](TokenId id) {
    const float logprob = kernels::logprob(logits, id, inverse, stats);
    require_finite(std::isfinite(logprob));
    DrawnToken token{id, logprob, stats.entropy, {}};
    if (params.top_logprobs > 0) token.top = likeliest_ids(logits, stats, params, num_drawable);
    return token;
  };

  if (params.temperature == 0) {
    const TokenId id = likeliest(drawable, barred);
    if (id < 0) all_barred();
    return finish(id);
  }
  const bool whole = params.top_p >= 1.0 && params.min_p <= 0 &&
                     (params.top_k <= 0 || params.top_k >= static_cast<int64_t>(logits.size()));
  if (whole && barred.empty() && drawable.size() == logits.size())
    return finish(kernels::invert_distribution(logits, inverse, stats, uniform));
  const std::vector<float> allowed = without(drawable, barred);
  const float top = std::ranges::max(allowed);
  if (top == kImpossible) nothing_left();
  if (whole) return finish(draw_whole(allowed, inverse, uniform));
  return finish(draw_narrowed(allowed, inverse, top, params, uniform));
}

void validate(const SamplingParams& p) {
  const auto refuse = [](const std::string& what) { throw ConfigError(what); };
  if (!std::isfinite(p.temperature) || p.temperature < 0)
    refuse("temperature must be a number >= 0, not " + std::to_string(p.temperature));
  if (p.temperature > 0 && p.temperature < 1e-6)
    refuse("temperature must be 0 (always the likeliest token) or at least 1e-6");
  if (p.top_k == 0 || p.top_k < -1) refuse("top_k must be positive, or -1 for all, not " + std::to_string(p.top_k));
  if (!(p.top_p > 0 && p.top_p <= 1)) refuse("top_p must be in (0, 1], not " + std::to_string(p.top_p));
  if (!(p.min_p >= 0 && p.min_p <= 1)) refuse("min_p must be in [0, 1], not " + std::to_string(p.min_p));
  if (p.max_tokens < 1) refuse("max_tokens must be at least 1, not " + std::to_string(p.max_tokens));
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens)
    refuse("min_tokens must be between 0 and max_tokens (" + std::to_string(p.max_tokens) + "), not " +
           std::to_string(p.min_tokens));
  if (p.top_logprobs < 0) refuse("top_logprobs must not be negative");
  for (const std::string& stop : p.stop)
    if (stop.empty()) refuse("stop holds an empty string, which would end every response at once; remove it");
}

}  // namespace tandem
