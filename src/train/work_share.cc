#include "train/work_share.h"

#include "model/sequence_split.h"
#include "parallel/balance.h"

namespace tandem {
namespace {

constexpr size_t kGroupsPerRank = 4;  // with fewer prompts a rank, single samples are dealt out

// What goes to a rank as one: samples [begin, end).
struct Unit {
  size_t begin, end;
  int64_t cost;
};

std::vector<Unit> make_units(SampleList samples, size_t unit_samples, bool by_prompt, int64_t attention_tokens) {
  std::vector<Unit> units;
  for (size_t begin = 0; begin < samples.size();) {
    size_t end = std::min(samples.size(), begin + unit_samples);
    const auto& prompt = samples[begin]->trajectory->prompt;
    while (by_prompt && end < samples.size() && samples[end]->trajectory->prompt == prompt) ++end;
    const auto prompt_tokens = static_cast<int64_t>(prompt->token_ids.size());
    int64_t cost = sequence_cost(prompt_tokens, attention_tokens);
    for (size_t i = begin; i < end; ++i) {
      const int64_t whole = prompt_tokens + static_cast<int64_t>(num_tokens(*samples[i])) - 1;
      cost += sequence_cost(whole, attention_tokens) - sequence_cost(prompt_tokens, attention_tokens);
    }
    units.push_back({begin, end, cost});
    begin = end;
  }
  return units;
}

size_t count_prompts(SampleList samples) {
  size_t prompts = 0;
  for (size_t i = 0; i < samples.size(); ++i)
    prompts += i == 0 || samples[i]->trajectory->prompt != samples[i - 1]->trajectory->prompt ? 1 : 0;
  return prompts;
}

}  // namespace

WorkShare share_work(const Decoder& decoder, SampleList samples, const BatchingOptions& options,
                     const Communicator& ranks, int64_t bytes_per_token) {
  const int together = decoder.sequences() != nullptr ? decoder.sequences()->size() : 1;
  const int parts = ranks.size() / together;
  const auto size = static_cast<size_t>(parts);
  const bool by_prompt = count_prompts(samples) >= kGroupsPerRank * size;
  const auto units = make_units(samples, options.unit_samples, by_prompt, 4 * decoder.config().hidden_size);
  std::vector<int64_t> costs;
  for (const Unit& unit : units) costs.push_back(unit.cost);
  const std::vector<int> rank_of = balanced_parts(costs, parts);
  std::vector<std::vector<size_t>> by_rank(size);
  for (size_t u = 0; u < units.size(); ++u)
    for (size_t i = units[u].begin; i < units[u].end; ++i) by_rank[static_cast<size_t>(rank_of[u])].push_back(i);
  WorkShare share;
  share.imbalance = imbalance(costs, rank_of, parts);
  for (const auto& chosen : by_rank) {
    std::vector<const TrainingSample*> theirs;
    for (const size_t i : chosen) theirs.push_back(samples[i]);
    share.most_micro_batches =
        std::max(share.most_micro_batches, micro_batch_ends(bytes_per_token, theirs, options).size());
  }
  share.mine = std::move(by_rank[static_cast<size_t>(ranks.rank() / together)]);
  return share;
}

}  // namespace tandem
