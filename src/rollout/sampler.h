// Draws a token from a row of logits. Pure functions: the draw depends on the row, the parameters and `uniform` alone.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "data/types.h"
#include "rollout/sampling_params.h"

namespace tandem {

class NonFiniteLogits : public DataError {  // the weights are broken, whatever is asked of them
 public:
  using DataError::DataError;
};
namespace kernels {
struct RowStats;
}

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

struct DrawnToken {
  TokenId id = 0;
  float logprob = 0;              // see SamplingParams
  float entropy = 0;              // of the same distribution, in nats
  std::vector<TokenLogprob> top;  // as many as SamplingParams::top_logprobs, the likeliest first
};

// The likeliest ids of a row and their log-probs; of equals the lowest id comes first.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, const SamplingParams& params,
                                       int64_t num_drawable);

// `num_drawable`: ids from there on (a padded vocabulary's tail) are never drawn. `may_end`: whether end and stop ids
// may be drawn. NonFiniteLogits when they are not finite enough to draw from, DataError when all are barred.
DrawnToken draw_token(std::span<const float> logits, const SamplingParams& params, int64_t num_drawable, bool may_end,
                      double uniform);
// The same, given the statistics of the whole row at the temperature.
DrawnToken draw_token(std::span<const float> logits, const kernels::RowStats& stats, const SamplingParams& params,
                      int64_t num_drawable, bool may_end, double uniform);

// Ids that may not be drawn while the response may not end.
std::vector<TokenId> barred_ids(const SamplingParams& params, bool may_end);

// What a device drew, or the error that its id stands for (kernels::Drawn).
DrawnToken checked_draw(int32_t id, float logprob, float entropy);

}  // namespace tandem
