// Continuous batching (Yu et al., Orca, OSDI 2022) over a paged cache (Kwon et al., SOSP 2023): which sequences compute
// how many tokens in the next forward pass. Sequences that run go first; when blocks run out the latest one is set back
// and computed again later. Not thread-safe. Exactness does not depend on anything decided here.
#pragma once

#include <deque>
#include <vector>

#include "rollout/block_manager.h"
#include "rollout/sequence.h"

namespace tandem {

struct SchedulerOptions {
  int64_t max_num_seqs = 256;             // sequences that hold blocks
  int64_t max_num_batched_tokens = 8192;  // tokens of one forward pass
  bool chunked_prefill = true;            // long prompts in pieces; else only whole
};

struct ScheduledSequence {
  Sequence* sequence;
  int64_t num_tokens;  // computed in this pass
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, BlockManager& blocks) : options_(options), blocks_(blocks) {}

  void add(SequencePtr sequence) { waiting_.push_back(std::move(sequence)); }
  // A fork that already holds its prompt's blocks; false (and it waits like any other) when there is no room for it.
  bool add_running(SequencePtr sequence);
  bool empty() const { return waiting_.empty() && running_.empty(); }

  std::vector<ScheduledSequence> schedule();
  // After the pass: its keys and values are in place.
  void mark_computed(std::span<const ScheduledSequence> pass);
  // Takes a finished sequence out and gives its blocks back.
  SequencePtr remove(Sequence* sequence);
  // Drops all sequences of a request, waiting or running, and gives their blocks back. Returns how many there were.
  int64_t remove_all(const GenerationRequest& request);
  // Sets the latest `count` running sequences back, as when blocks run out.
  void preempt(int64_t count);

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_preempted() const { return num_preempted_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }  // found in the prefix cache, not computed

 private:
  bool reserve(Sequence& sequence, int64_t num_tokens);
  void set_back_last();
  bool admit(std::vector<ScheduledSequence>& pass, int64_t& budget);
  bool prefix_in_flight(const Sequence& sequence, std::span<const ScheduledSequence> pass, int64_t cached) const;
  void free_blocks(Sequence& sequence);

  SchedulerOptions options_;
  BlockManager& blocks_;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;
  int64_t num_preempted_ = 0, num_cached_tokens_ = 0;
};

}  // namespace tandem
