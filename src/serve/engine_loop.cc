#include "serve/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace tandem {

EngineLoop::EngineLoop(std::unique_ptr<Decoder> decoder, EngineLoopOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer), decoder_(std::move(decoder)) {
  make_generator();
  count();
}

EngineLoop::~EngineLoop() = default;

void EngineLoop::make_generator() {
  const auto on_finish = [this](const TrajectoryPtr& trajectory, const std::string&) {
    Active& active = active_.at(trajectory->prompt.get());
    update_of(active, trajectory->sample_index).stop_reason = trajectory->stop_reason;
    ++pass_replies_, pass_reply_tokens_ += std::ssize(trajectory->response_ids);
    if (--active.num_left == 0) ended_.push_back(trajectory->prompt.get());
  };
  generator_.reset();  // its cache first: two might not fit
  generator_ = std::make_unique<Generator>(*decoder_, options_.generator, &tokenizer_, on_finish);
}

std::vector<GenerationPtr> EngineLoop::submit(std::vector<GenerationJob> jobs) {
  int64_t samples = 0;
  for (const GenerationJob& job : jobs) {
    validate(job.params);
    const auto length = std::ssize(job.prompt_ids);
    if (length == 0) throw DataError("the prompt has no tokens");
    if (length >= max_model_len())
      throw DataError(
          fmt::format("the prompt has {} tokens and leaves no room for a reply: the limit of both together "
                      "is {} tokens",
                      length, max_model_len()));
    samples += job.num_samples;
  }
  if (samples > options_.max_samples)
    throw DataError(fmt::format("the request asks for {} replies, at most {} are made at once; ask for fewer", samples,
                                options_.max_samples));
  std::vector<GenerationPtr> generations;
  for (GenerationJob& job : jobs) generations.push_back(std::make_shared<Generation>(std::move(job)));
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw ShuttingDown("the server is shutting down");
    check_room(samples);
    num_samples_ += samples;
    incoming_.insert(incoming_.end(), generations.begin(), generations.end());
  }
  work_.notify_one();
  return generations;
}

void EngineLoop::check_room(int64_t samples) const {
  if (num_samples_ + samples > options_.max_samples)
    throw Overloaded(
        fmt::format("{} replies are in flight, {} is the limit; try again", num_samples_, options_.max_samples));
  if (options_.max_wait_seconds <= 0) return;
  const int64_t at_once = options_.generator.scheduler.max_num_seqs;
  const auto wait = pace_.seconds_to_turn(num_samples_, at_once);
  if (wait ? *wait <= options_.max_wait_seconds : num_samples_ < 2 * at_once) return;
  const double longer = wait ? *wait - options_.max_wait_seconds : 0;
  throw Overloaded(fmt::format("{} replies are in flight, one more would begin after {}; try again", num_samples_,
                               wait ? fmt::format("some {:.0f} s", *wait) : "too long"),
                   static_cast<int>(std::clamp(std::ceil(longer), 1.0, 60.0)));
}

void EngineLoop::cancel(const GenerationPtr& generation) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(generation);
  }
  work_.notify_one();
}

std::future<void> EngineLoop::run_between(std::function<void(const Decoder&)> work) {
  std::future<void> done;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw ShuttingDown("the server is shutting down");
    between_.push_back({std::move(work), {}});
    done = between_.back().done.get_future();
  }
  work_.notify_one();
  return done;
}

std::future<uint64_t> EngineLoop::swap_weights(std::unique_ptr<Decoder> decoder, std::optional<uint64_t> version) {
  std::future<uint64_t> done;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw ShuttingDown("the server is shutting down");
    swaps_.push_back({std::move(decoder), version, {}});
    done = swaps_.back().done.get_future();
  }
  work_.notify_one();
  return done;
}

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
}

EngineCounts EngineLoop::counts() const {
  const std::lock_guard lock(mutex_);
  EngineCounts counts = counts_;
  counts.waiting += std::ssize(incoming_);
  return counts;
}

void EngineLoop::run() {
  const auto down = std::make_exception_ptr(ShuttingDown("the server is shutting down"));
  while (take_work()) {
    try {
      const auto begin = ServeClock::now();
      pass_tokens_ = pass_replies_ = pass_reply_tokens_ = 0;
      generator_->step();
      publish();
      const double seconds = std::chrono::duration<double>(ServeClock::now() - begin).count();
      const std::lock_guard lock(mutex_);
      pace_.add_pass(seconds, pass_tokens_, pass_replies_, pass_reply_tokens_);
    } catch (const std::exception& error) {
      // The pass is broken for all that shared it; the next ones start from an empty cache.
      log_error(fmt::format("a forward pass failed, its requests with it: {}", error.what()));
      fail_active(std::current_exception());
      past_ += generator_->stats();
      make_generator();
    }
    count();
  }
  fail_active(down);
  const std::lock_guard lock(mutex_);
  for (const GenerationPtr& generation : incoming_) generation->fail(down);
  for (Between& between : between_) between.done.set_exception(down);
  for (Swap& swap : swaps_) swap.done.set_exception(down);
  incoming_.clear(), between_.clear(), swaps_.clear();
}

// Takes what the other threads left, waiting while there is nothing to do; false when it is time to stop.
bool EngineLoop::take_work() {
  for (;;) {
    std::deque<GenerationPtr> incoming;
    std::vector<GenerationPtr> cancelled;
    std::deque<Between> between;
    std::optional<Swap> swap_now;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] {
        return stopping_ || !active_.empty() || !incoming_.empty() || !cancelled_.empty() || !between_.empty() ||
               !swaps_.empty();
      });
      if (stopping_) return false;
      cancelled.swap(cancelled_);
      between.swap(between_);
      for (const GenerationPtr& generation : cancelled)
        if (const size_t found = std::erase(incoming_, generation); found > 0) {
          num_samples_ -= generation->job().num_samples;
          ++counts_.cancelled;
        }
      if (swaps_.empty()) incoming.swap(incoming_);
      if (!swaps_.empty() && active_.empty()) {
        swap_now = std::move(swaps_.front());
        swaps_.pop_front();
      }
    }
    for (const GenerationPtr& generation : cancelled) drop(generation);
    for (Between& job : between) {
      try {
        job.work(*decoder_);
        job.done.set_value();
      } catch (...) {
        job.done.set_exception(std::current_exception());
      }
    }
    if (swap_now) swap(std::move(*swap_now));
    for (const GenerationPtr& generation : incoming) admit(generation);
    if (!active_.empty()) return true;
    count();
  }
}

void EngineLoop::admit(const GenerationPtr& generation) {
  const GenerationJob& job = generation->job();
  auto prompt = std::make_shared<Prompt>();  // id 0 for all: a reply follows from its seed alone
  prompt->token_ids = job.prompt_ids;
  const Prompt* key = prompt.get();
  auto request = std::make_shared<GenerationRequest>();
  request->prompt = std::move(prompt);
  request->params = job.params;
  request->num_samples = job.num_samples;
  request->on_text = [this, key](uint32_t sample, std::string_view piece) {
    update_of(active_.at(key), sample).text += piece;
  };
  request->on_token = [this, key](uint32_t sample, const DrawnToken& token) {
    update_of(active_.at(key), sample).tokens.push_back(token);
    ++pass_tokens_;
  };
  request->on_failure = [this, key](const std::exception_ptr& failure) {
    active_.at(key).generation->fail(failure);
    ended_.push_back(key);
  };
  generation->start(version_);
  active_[key] = {generation, request, {}, job.num_samples, false};
  try {
    generator_->add(request);
  } catch (const Error&) {
    request->on_failure(std::current_exception());
    publish();
  }
}

void EngineLoop::drop(const GenerationPtr& generation) {
  const auto place = std::ranges::find_if(active_, [&](const auto& a) { return a.second.generation == generation; });
  if (place == active_.end()) return;
  generator_->cancel(*place->second.request);
  active_.erase(place);
  const std::lock_guard lock(mutex_);
  num_samples_ -= generation->job().num_samples;
  ++counts_.cancelled;
}

void EngineLoop::swap(Swap swap) {
  past_ += generator_->stats();
  generator_.reset();
  decoder_ = std::move(swap.decoder);
  version_ = swap.version.value_or(version_ + 1);
  make_generator();  // the cached keys are the old weights'
  count();
  swap.done.set_value(version_);
}

SampleUpdate& EngineLoop::update_of(Active& active, uint32_t sample) {
  if (!active.touched) touched_.push_back(&active);
  active.touched = true;
  const auto found = std::ranges::find(active.updates, sample, &SampleUpdate::sample);
  if (found != active.updates.end()) return *found;
  return active.updates.emplace_back(SampleUpdate{sample, {}, {}, {}});
}

// Hands a pass's news to their readers.
void EngineLoop::publish() {
  for (Active* active : touched_) {
    active->touched = false;
    active->generation->publish(std::exchange(active->updates, {}));
  }
  touched_.clear();
  if (ended_.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const Prompt* prompt : ended_) {
    num_samples_ -= active_.at(prompt).generation->job().num_samples;
    active_.erase(prompt);
  }
  ended_.clear();
}

void EngineLoop::fail_active(const std::exception_ptr& failure) {
  touched_.clear(), ended_.clear();
  const std::lock_guard lock(mutex_);
  for (auto& [prompt, active] : active_) {
    active.generation->fail(failure);
    num_samples_ -= active.generation->job().num_samples;
  }
  active_.clear();
}

void EngineLoop::count() {
  GeneratorStats stats = past_;
  stats += generator_->stats();
  const std::lock_guard lock(mutex_);
  counts_.stats = stats;
  counts_.running = generator_->num_running(), counts_.waiting = generator_->num_waiting();
  counts_.blocks = generator_->num_blocks(), counts_.free_blocks = generator_->num_free_blocks();
  counts_.weights_version = version_;
}

}  // namespace tandem
