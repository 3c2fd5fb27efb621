#include "serve/generation.h"

#include <iterator>
#include <utility>

namespace tandem {

bool Generation::ready() const {
  return failure_ || num_ended_ == job_.num_samples || (job_.streamed && !updates_.empty());
}

std::vector<SampleUpdate> Generation::take(ServeClock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return ready(); });
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(updates_, {});
}

bool Generation::finished() const {
  const std::lock_guard lock(mutex_);
  return num_ended_ == job_.num_samples && updates_.empty();
}

std::optional<ServeClock::time_point> Generation::begun() const {
  const std::lock_guard lock(mutex_);
  return begun_;
}

uint64_t Generation::weights_version() const {
  const std::lock_guard lock(mutex_);
  return weights_version_;
}

void Generation::start(uint64_t weights_version) {
  const std::lock_guard lock(mutex_);
  weights_version_ = weights_version;
}

void Generation::publish(std::vector<SampleUpdate> updates) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (!begun_) begun_ = ServeClock::now();
    for (const SampleUpdate& update : updates) num_ended_ += update.stop_reason.has_value() ? 1 : 0;
    std::move(updates.begin(), updates.end(), std::back_inserter(updates_));
    wake = ready();
  }
  if (wake) changed_.notify_one();
}

void Generation::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (num_ended_ < job_.num_samples) failure_ = std::move(failure);
  }
  changed_.notify_one();
}

}  // namespace tandem
