// How many prompts a step takes: fewer while rollout is slow, so that steps stay short, and all again when it recovers.
// A decision by rates alone; who measures them, and who obeys, is elsewhere.
#pragma once

#include <cstdint>
#include <map>

namespace tandem {

struct BatchSizeOptions {
  int64_t full = 1, least = 1, step = 1;  // prompts; step: one change
  double low = 0.6, high = 0.85;          // utilization: the rate over the best one known for that size
  int64_t patience = 2;                   // steps in a row below `low`, or above `high`, before a change
};

// Not thread-safe.
class BatchSize {
 public:
  explicit BatchSize(const BatchSizeOptions& options) : options_(options), size_(options.full) {}

  int64_t size() const { return size_; }
  double utilization() const { return utilization_; }  // of the last step that was observed; 1 before any

  // A step at the present size drew so many tokens a second; the size of the next follows. Of a size that was never
  // seen the best rate is taken to be that of a larger one in proportion: it is at least that. Known rates fade by 1 %
  // a step, so that one lucky step does not count for ever.
  void observe(double tokens_per_second);
  // Goes on from a size, of an interrupted run.
  void restore(int64_t size);

 private:
  double best_rate(int64_t size) const;  // 0: nothing is known
  void change(int64_t size);

  BatchSizeOptions options_;
  int64_t size_, slow_ = 0, quick_ = 0;  // steps in a row
  double utilization_ = 1;
  std::map<int64_t, double> best_;  // tokens a second, by size
};

}  // namespace tandem
