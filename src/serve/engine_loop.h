// One thread that generates for many: requests come and go while it runs, each pass computing for all that are there.
// A request's tokens and log-probs do not depend on what shares its passes. New weights are taken between requests:
// what runs is finished with the old ones, what comes meanwhile waits for the new ones.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "rollout/generator.h"
#include "serve/generation.h"
#include "serve/pace.h"

namespace tandem {

class Overloaded : public Error {  // no room now; the same request may be sent again later
 public:
  explicit Overloaded(const std::string& message, int retry_after_s = 1)
      : Error(message), retry_after_s_(retry_after_s) {}
  int retry_after_s() const { return retry_after_s_; }

 private:
  int retry_after_s_;
};
class ShuttingDown : public Error {
 public:
  using Error::Error;
};

struct EngineLoopOptions {
  GeneratorOptions generator;
  int64_t max_samples = 1024;  // in flight, waiting or running; beyond it a request is refused as Overloaded
  // So are requests whose first reply would begin later than this; while that cannot be told, those with as many before
  // them as are computed twice over. 0: no such limit.
  double max_wait_seconds = 0;
};

struct EngineCounts {
  GeneratorStats stats;  // since the start
  int64_t running = 0, waiting = 0, blocks = 0, free_blocks = 0;
  int64_t cancelled = 0;
  uint64_t weights_version = 0;
};

using GenerationPtr = std::shared_ptr<Generation>;

// Thread-safe, but for run().
class EngineLoop {
 public:
  // `tokenizer` must outlive it.
  EngineLoop(std::unique_ptr<Decoder> decoder, EngineLoopOptions options, const Tokenizer& tokenizer);
  ~EngineLoop();

  // Generates until stop(), on the calling thread, which then owns the kernels' threads.
  void run();
  void stop();  // what is still in flight fails as ShuttingDown

  // All of the jobs or none. ConfigError or DataError for what cannot be answered, Overloaded, ShuttingDown.
  std::vector<GenerationPtr> submit(std::vector<GenerationJob> jobs);
  // The client is gone: its sequences end and their blocks are free before the next pass.
  void cancel(const GenerationPtr& generation);

  // Something to compute with the weights between two passes.
  std::future<void> run_between(std::function<void(const Decoder&)> work);
  // Becomes true, so to say, when everything before it is answered; gives the new version: `version`, or one more.
  std::future<uint64_t> swap_weights(std::unique_ptr<Decoder> decoder, std::optional<uint64_t> version);

  EngineCounts counts() const;
  int64_t max_model_len() const { return options_.generator.max_model_len; }
  int64_t max_samples() const { return options_.max_samples; }

 private:
  struct Active {
    GenerationPtr generation;
    std::shared_ptr<const GenerationRequest> request;
    std::vector<SampleUpdate> updates;  // of this pass
    uint32_t num_left = 0;
    bool touched = false;
  };
  struct Swap {
    std::unique_ptr<Decoder> decoder;
    std::optional<uint64_t> version;
    std::promise<uint64_t> done;
  };
  struct Between {
    std::function<void(const Decoder&)> work;
    std::promise<void> done;
  };

  bool take_work();
  void make_generator();
  void admit(const GenerationPtr& generation);
  void drop(const GenerationPtr& generation);
  void swap(Swap swap);
  SampleUpdate& update_of(Active& active, uint32_t sample);
  void fail_active(const std::exception_ptr& failure);
  void publish();
  void count();
  void check_room(int64_t samples) const;  // needs the mutex

  const EngineLoopOptions options_;
  const Tokenizer& tokenizer_;
  // The engine's thread only.
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Generator> generator_;
  std::unordered_map<const Prompt*, Active> active_;
  std::vector<Active*> touched_;
  std::vector<const Prompt*> ended_;
  GeneratorStats past_;                                                 // of generators before this one
  int64_t pass_tokens_ = 0, pass_replies_ = 0, pass_reply_tokens_ = 0;  // of the pass that runs
  uint64_t version_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<GenerationPtr> incoming_;
  std::vector<GenerationPtr> cancelled_;
  std::deque<Between> between_;
  std::deque<Swap> swaps_;
  int64_t num_samples_ = 0;  // in flight
  ReplyPace pace_;
  EngineCounts counts_;
  bool stopping_ = false;
};

}  // namespace tandem
