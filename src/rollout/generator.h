// From requests to finished responses: schedule, forward, draw, repeat. Requests may come and go between steps. Not
// thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "data/trajectory_store.h"
#include "model/decoder.h"
#include "rollout/sampler.h"
#include "rollout/scheduler.h"

namespace tandem {

// A forward pass and the drawing after it, for traces.
struct GeneratorPass {
  std::chrono::steady_clock::time_point begin, end;
  int64_t num_sequences = 0, num_tokens = 0, num_drawn = 0;
};

struct GeneratorOptions {
  SchedulerOptions scheduler;
  int64_t num_blocks = 0;  // of the paged cache, kKvBlock tokens each
  bool prefix_caching = true;
  int64_t max_model_len = 0;  // prompt and response together
  int64_t num_drawable = 0;   // ids a response may hold; a model's vocabulary may be padded beyond it
  std::function<void(const GeneratorPass&)> on_pass;  // may be empty
  int64_t preempt_every = 0;  // tests: set the latest sequence back every so many passes; 0 never
};

struct GeneratorStats {
  int64_t num_passes = 0, num_prompt_tokens = 0, num_response_tokens = 0;
  int64_t num_computed_tokens = 0, num_cached_tokens = 0, num_preempted = 0;

  GeneratorStats& operator+=(const GeneratorStats& other);
};

using FinishCallback = std::function<void(TrajectoryPtr, const std::string& text)>;

class Generator {
 public:
  // `tokenizer` may be null where no request has stop strings or streams text. Both must outlive the generator.
  Generator(const Decoder& decoder, const GeneratorOptions& options, const Tokenizer* tokenizer,
            FinishCallback on_finish);

  // ConfigError for parameters no response can satisfy, DataError for a prompt that is empty or too long.
  void add(std::shared_ptr<const GenerationRequest> request);

  // Ends a request between steps: nothing more is heard of it, and its blocks are free. Unknown ones are no error.
  void cancel(const GenerationRequest& request) { scheduler_.remove_all(request); }

  bool step();  // one forward pass; false when nothing is left
  void run() {
    while (step()) {
    }
  }
  GeneratorStats stats() const;
  int64_t num_running() const { return scheduler_.num_running(); }
  int64_t num_waiting() const { return scheduler_.num_waiting(); }
  int64_t num_blocks() const { return blocks_.num_blocks(); }
  int64_t num_free_blocks() const { return blocks_.num_free(); }

 private:
  struct Draw;
  TokenBatch make_batch(std::span<const ScheduledSequence> pass, std::vector<int32_t>& rows,
                        std::vector<Draw>& draws) const;
  static bool wants_top(const Draw& draw);
  bool may_replay(const TokenBatch& batch, std::span<const Draw> draws) const;
  void replay(const TokenBatch& batch, std::span<Draw> draws);
  static std::vector<kernels::DrawRow> draw_rows(std::span<const Draw> draws);
  void draw_on_device(const at::Tensor& logits, std::span<Draw> draws) const;
  void draw_tokens(const at::Tensor& normed_RE, std::vector<Draw>& draws) const;
  void drop_failed(std::vector<Draw>& draws);
  void continue_sequence(Sequence& sequence, const DrawnToken& token);
  void start_fork(const Sequence& leader, uint32_t sample_index, const DrawnToken& token);
  std::optional<StopReason> append(Sequence& sequence, const DrawnToken& token) const;
  void finish(SequencePtr sequence, StopReason reason);
  SequencePtr new_sequence(const std::shared_ptr<const GenerationRequest>& request, uint32_t sample_index) const;

  const Decoder& decoder_;
  GeneratorOptions options_;
  const Tokenizer* tokenizer_;
  FinishCallback on_finish_;
  BlockManager blocks_;
  Scheduler scheduler_;
  std::vector<at::Tensor> kv_;
  std::map<std::pair<int64_t, bool>, std::unique_ptr<kernels::DecodeGraph>> graphs_;  // by sequences, narrowing
  GeneratorStats stats_;
};

// Blocks that `budget_bytes` of keys and values of `value_bytes` each hold, at least enough for one sequence of
// max_model_len, or a ConfigError saying how much that needs. `wanted`: no more than this many are of use.
int64_t plan_kv_blocks(const ModelConfig& config, int64_t budget_bytes, int64_t max_model_len, int64_t wanted,
                       int64_t value_bytes = sizeof(float));

}  // namespace tandem
