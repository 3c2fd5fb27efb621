#include "rollout/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace tandem {

using kernels::kKvBlock;

bool Scheduler::add_running(SequencePtr sequence) {
  if (num_running() >= options_.max_num_seqs) {
    free_blocks(*sequence);
    waiting_.push_back(std::move(sequence));
    return false;
  }
  running_.push_back(std::move(sequence));
  return true;
}

std::vector<ScheduledSequence> Scheduler::schedule() {
  std::vector<ScheduledSequence> pass;
  int64_t budget = options_.max_num_batched_tokens;
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const int64_t tokens = std::min(budget, running_[i]->num_to_compute());
    while (i < running_.size() && !reserve(*running_[i], tokens)) set_back_last();
    if (i >= running_.size()) break;  // it was the last one itself
    pass.push_back({running_[i].get(), tokens});
    budget -= tokens;
  }
  while (budget > 0 && !waiting_.empty() && num_running() < options_.max_num_seqs && admit(pass, budget)) {
  }
  check(!pass.empty() || empty(), "the scheduler has work and cannot place any of it");
  return pass;
}

bool Scheduler::reserve(Sequence& sequence, int64_t num_tokens) {
  const int64_t wanted = (sequence.num_computed + num_tokens + kKvBlock - 1) / kKvBlock;
  while (static_cast<int64_t>(sequence.blocks.size()) < wanted) {
    const auto block = blocks_.allocate();
    if (!block) return false;
    sequence.blocks.push_back(*block);
  }
  return true;
}

void Scheduler::set_back_last() {
  SequencePtr last = std::move(running_.back());
  running_.pop_back();
  free_blocks(*last);
  waiting_.push_front(std::move(last));
  ++num_preempted_;
}

void Scheduler::preempt(int64_t count) {
  for (; count > 0 && !running_.empty(); --count) set_back_last();
}

// Starts the first waiting sequence; false when it must wait for another pass.
bool Scheduler::admit(std::vector<ScheduledSequence>& pass, int64_t& budget) {
  Sequence& next = *waiting_.front();
  // At least one token is computed, whose hidden state the next one is drawn from.
  next.blocks = blocks_.acquire_prefix(next.tokens, (next.num_tokens() - 1) / kKvBlock);
  next.num_computed = static_cast<int64_t>(next.blocks.size()) * kKvBlock;
  const int64_t cached = next.num_computed, left = next.num_to_compute();
  const bool too_long = !options_.chunked_prefill && left > budget && !pass.empty();
  const int64_t tokens = options_.chunked_prefill ? std::min(budget, left) : left;
  if (too_long || prefix_in_flight(next, pass, cached) || !reserve(next, tokens)) {
    free_blocks(next);
    return false;
  }
  num_cached_tokens_ += cached;
  pass.push_back({&next, tokens});
  budget -= tokens;
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return true;
}

// Whether this very pass computes a block that `sequence` could then take from the cache: waiting one pass saves it.
bool Scheduler::prefix_in_flight(const Sequence& sequence, std::span<const ScheduledSequence> pass,
                                 int64_t cached) const {
  if (!blocks_.prefix_caching()) return false;
  constexpr size_t kLookBack = 16;
  for (size_t i = pass.size() - std::min(pass.size(), kLookBack); i < pass.size(); ++i) {
    const Sequence& other = *pass[i].sequence;
    if (other.num_computed > cached || pass[i].num_tokens == 1) continue;
    const int64_t reach =
        std::min({other.num_computed + pass[i].num_tokens, sequence.num_tokens() - 1, cached + kKvBlock});
    if (reach < cached + kKvBlock) continue;
    if (std::equal(sequence.tokens.begin(), sequence.tokens.begin() + reach, other.tokens.begin())) return true;
  }
  return false;
}

void Scheduler::free_blocks(Sequence& sequence) {
  // Last block first: what is reused soonest must not be the beginning, without which the rest cannot be found.
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) blocks_.release(*block);
  sequence.blocks.clear();
  sequence.num_computed = 0;
}

void Scheduler::mark_computed(std::span<const ScheduledSequence> pass) {
  for (const auto& [sequence, num_tokens] : pass) {
    sequence->num_computed += num_tokens;
    if (num_tokens > 1 || sequence->num_computed % kKvBlock == 0)
      blocks_.register_content(sequence->blocks, std::span(sequence->tokens).first(sequence->num_computed));
  }
}

int64_t Scheduler::remove_all(const GenerationRequest& request) {
  const auto belongs = [&](const SequencePtr& sequence) { return sequence->request.get() == &request; };
  for (const SequencePtr& sequence : running_)
    if (belongs(sequence)) free_blocks(*sequence);
  return static_cast<int64_t>(std::erase_if(running_, belongs) + std::erase_if(waiting_, belongs));
}

SequencePtr Scheduler::remove(Sequence* sequence) {
  const auto place = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == sequence; });
  check(place != running_.end(), "only a running sequence can be removed");
  SequencePtr taken = std::move(*place);
  running_.erase(place);
  free_blocks(*taken);
  return taken;
}

}  // namespace tandem
