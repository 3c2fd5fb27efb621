// An update's samples among the ranks of an engine: the order names them, with what single numbers say of them; their
// tokens go from the rank that has them to those that lack them. Nothing that grows with a response is in the order.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/communicator.h"
#include "train/training_sample.h"

namespace tandem {

// A sample as an order names it.
struct SampleName {
  uint64_t prompt = 0;
  uint32_t sample_index = 0;
  int32_t owner = 0;  // the rank that drew it and still has it; 0 has all
  uint32_t prompt_length = 0, response_length = 0;
  double advantage = 0;
};
std::string encode_names(const std::vector<SampleName>& names);
std::vector<SampleName> decode_names(const std::string& bytes);
std::string shapes_of(const std::vector<SampleName>& names);  // "16 samples: prompt_ids[83..101], response_ids[3..8]"

// What a rank drew since the first rollout of a step, by prompt and sample.
using DrawnHere = std::map<std::pair<uint64_t, uint32_t>, TrajectoryPtr>;

// By all ranks of `world`. The first one gives what only it has (responses that it owns, and what its roles found out
// of each token) to all others; every other one gives the responses that it owns to all but the first. `whole`: the
// first rank's samples, of which `names` are the names; elsewhere empty. Returns the samples, on every rank.
std::vector<TrainingSample> exchange_samples(Communicator& world, const std::vector<SampleName>& names,
                                             std::vector<TrainingSample> whole, const DrawnHere& drawn);

}  // namespace tandem
