// The records that travel between the phases of a step. Torch-free.
// The controller sees ids, lengths and per-sample scalars (`Sample`); token-level data (`Trajectory`) stays where it
// was made, in a `TrajectoryStore`, and is named by a handle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

using TokenId = int32_t;

struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

// One row of the data set, templated and tokenised.
struct Prompt {
  uint64_t id = 0;                 // the row's index in the concatenated files: names its random numbers for ever
  std::vector<TokenId> token_ids;  // after the chat template, generation prompt included
  std::vector<Message> messages;
  std::string data_source;  // chooses the reward rule
  std::string ground_truth;
  std::string extra_info;  // the row's extra_info as a JSON object, "{}" when absent
};
using PromptPtr = std::shared_ptr<const Prompt>;

enum class StopReason : uint8_t {
  kEndOfText,  // an end-of-sequence id was drawn; it is the last response token
  kStopToken,  // a stop id or a stop string; its tokens are part of the response
  kLength,     // cut at the token limit
};
const char* to_string(StopReason reason);

// One response with everything that was true when its tokens were drawn.
struct Trajectory {
  PromptPtr prompt;
  uint32_t sample_index = 0;    // within its prompt's group
  uint64_t policy_version = 0;  // of the weights that drew it
  double temperature = 1.0;     // its log-probs are those of softmax(logits / temperature)
  std::vector<TokenId> response_ids;
  std::vector<float> rollout_logprobs;  // one a response token, over the whole vocabulary
  std::vector<uint8_t> response_mask;   // one a response token: 0 where a tool wrote it; empty: the model wrote all
  StopReason stop_reason = StopReason::kLength;
  double mean_entropy = 0;  // of the distributions its tokens were drawn from, in nats
};
using TrajectoryHandle = uint64_t;

// What the controller knows of a sample.
struct Sample {
  TrajectoryHandle handle = 0;
  uint64_t prompt_id = 0;
  uint32_t sample_index = 0;
  uint32_t group = 0;  // index of its prompt within the batch
  uint32_t prompt_length = 0;
  uint32_t response_length = 0;
  uint32_t trained_length = 0;  // response tokens that count in the loss: neither a tool's nor rejected
  StopReason stop_reason = StopReason::kLength;
  double score = 0;         // what the reward function gave
  double reward = 0;        // score plus shaping (KL in reward, overlong penalty)
  double kl = 0;            // Σ over its trained tokens of the estimated KL against the reference, where there is one
  double baseline = 0;      // remax: the reward of its prompt's greedy response
  double advantage = 0;     // of each of its tokens, or their mean where each has its own
  double mean_entropy = 0;  // of the distributions its tokens were drawn from, in nats
};
using RolloutBatch = std::vector<Sample>;

}  // namespace tandem
