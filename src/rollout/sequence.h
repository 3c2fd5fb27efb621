// One response being made.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "data/types.h"
#include "rollout/response_text.h"
#include "rollout/sampler.h"
#include "rollout/sampling_params.h"

namespace tandem {

// A new piece of a response's text, for streaming. Pieces come in order within a response.
using TextCallback = std::function<void(uint32_t sample_index, std::string_view piece)>;
// Each token as it is drawn, before the text that it completes.
using TokenCallback = std::function<void(uint32_t sample_index, const DrawnToken& token)>;
// No token could be drawn; the request's responses so far are gone.
using FailureCallback = std::function<void(std::exception_ptr)>;

struct GenerationRequest {
  PromptPtr prompt;
  SamplingParams params;
  uint32_t num_samples = 1;
  uint64_t policy_version = 0;
  // The callbacks may all be empty. step() calls them; they must not call the generator. Without on_failure it throws.
  TextCallback on_text = {};
  std::vector<uint32_t> sample_indices = {};  // one a sample, each once; empty: 0, 1 ...
  TokenCallback on_token = {};
  FailureCallback on_failure = {};

  uint32_t index_of(uint32_t sample) const { return sample_indices.empty() ? sample : sample_indices[sample]; }
};

struct Sequence {
  std::shared_ptr<const GenerationRequest> request;
  uint32_t sample_index = 0;
  std::vector<TokenId> tokens;  // prompt, then response
  int64_t num_computed = 0;     // tokens whose keys and values are in `blocks`
  std::vector<int32_t> blocks;
  std::vector<float> logprobs;       // one a response token
  double entropy_sum = 0;            // of the distributions they were drawn from
  uint32_t num_forks = 0;            // samples of the same prompt that start when its prompt is computed
  std::optional<ResponseText> text;  // where it is needed: stop strings, streaming

  int64_t prompt_length() const { return static_cast<int64_t>(request->prompt->token_ids.size()); }
  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t response_length() const { return num_tokens() - prompt_length(); }
  int64_t num_to_compute() const { return num_tokens() - num_computed; }
  std::span<const TokenId> response() const { return std::span(tokens).subspan(request->prompt->token_ids.size()); }
  SampleKey key() const { return {request->params.seed, request->policy_version, request->prompt->id, sample_index}; }
};
using SequencePtr = std::unique_ptr<Sequence>;

}  // namespace tandem
