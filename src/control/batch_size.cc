#include "control/batch_size.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr double kFade = 0.99;

}  // namespace

double BatchSize::best_rate(int64_t size) const {
  const auto known = best_.find(size);
  double best = known == best_.end() ? 0 : known->second;
  for (auto larger = best_.upper_bound(size); larger != best_.end(); ++larger)
    best = std::max(best, larger->second * static_cast<double>(size) / static_cast<double>(larger->first));
  return best;
}

void BatchSize::observe(double tokens_per_second) {
  if (!(tokens_per_second > 0)) return;
  for (auto& [size, rate] : best_) rate *= kFade;
  const double best = std::max(best_rate(size_), tokens_per_second);
  utilization_ = tokens_per_second / best;
  double& known = best_[size_];
  known = std::max(known, tokens_per_second);
  slow_ = utilization_ < options_.low ? slow_ + 1 : 0;
  quick_ = utilization_ > options_.high ? quick_ + 1 : 0;
  if (slow_ >= options_.patience) {
    change(std::max(options_.least, size_ - options_.step));
  } else if (quick_ >= options_.patience) {
    change(std::min(options_.full, size_ + options_.step));
  }
}

void BatchSize::change(int64_t size) {
  size_ = size;
  slow_ = quick_ = 0;
}

void BatchSize::restore(int64_t size) { change(std::clamp(size, options_.least, options_.full)); }

}  // namespace tandem
