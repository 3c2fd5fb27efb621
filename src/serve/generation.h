// The replies to one prompt while they are made: the engine's thread writes, a connection's thread reads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rollout/sampler.h"

namespace tandem {

using ServeClock = std::chrono::steady_clock;

// One prompt to answer.
struct GenerationJob {
  std::vector<TokenId> prompt_ids;
  SamplingParams params;
  uint32_t num_samples = 1;
  bool streamed = false;  // the reader wants each token at once; else it is woken when all is done
};

// What is new of one sample.
struct SampleUpdate {
  uint32_t sample = 0;
  std::string text;  // what may be shown; it can come later than its tokens
  std::vector<DrawnToken> tokens;
  std::optional<StopReason> stop_reason;  // there: the sample's last update
};

// Thread-safe.
class Generation {
 public:
  explicit Generation(GenerationJob job) : job_(std::move(job)) {}

  const GenerationJob& job() const { return job_; }
  ServeClock::time_point submitted() const { return submitted_; }

  // Waits until something is there to be read, or `until`. Empty: nothing came. Rethrows what ended the request.
  std::vector<SampleUpdate> take(ServeClock::time_point until);
  bool finished() const;                                // every sample has ended and all has been taken
  std::optional<ServeClock::time_point> begun() const;  // when the first token came
  uint64_t weights_version() const;                     // of the weights that answer; known once something was taken

  // The engine's side.
  void start(uint64_t weights_version);
  void publish(std::vector<SampleUpdate> updates);
  void fail(std::exception_ptr failure);

 private:
  bool ready() const;

  const GenerationJob job_;
  const ServeClock::time_point submitted_ = ServeClock::now();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SampleUpdate> updates_;
  uint32_t num_ended_ = 0;
  uint64_t weights_version_ = 0;
  std::optional<ServeClock::time_point> begun_;
  std::exception_ptr failure_;
};

}  // namespace tandem
