// The workers of one role behind one typed call: split the argument, run every worker, merge the results. Timing and
// progress live here, so that a program's step stays bare. `call` may be used from one thread at a time.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "control/argument_shapes.h"
#include "control/dispatch.h"
#include "observe/progress.h"
#include "observe/timing.h"

namespace tandem {

// Where calls are timed (timing_s/<phase>) and shown, and what comes before each. All may be null.
struct CallObserver {
  PhaseTimer* timer = nullptr;
  Progress* progress = nullptr;
  // `method`: its kMethodName. `arguments`: their shapes as text.
  std::function<void(std::string_view method, const std::function<std::string()>& arguments)> before = {};
};

// "actor.update" of a worker's method; empty: it has none, and cannot be held.
template <auto Method>
inline constexpr std::string_view kMethodName = "";

template <class Worker>
class WorkerGroup {
 public:
  explicit WorkerGroup(std::vector<std::shared_ptr<Worker>> workers, CallObserver observer = {})
      : workers_(std::move(workers)), observer_(std::move(observer)) {
    check(!workers_.empty(), "a worker group needs a worker");
  }

  size_t world_size() const { return workers_.size(); }
  Worker& worker(size_t rank) { return *workers_[rank]; }

  // Throws what the worker of lowest rank threw, after all have ended.
  template <auto Method, class Arg>
  auto call(std::string_view phase, const Arg& arg) {
    using Result = std::remove_cvref_t<std::invoke_result_t<decltype(Method), Worker&, const Arg&>>;
    const Phase timed(observer_, phase);
    if (observer_.before && !kMethodName<Method>.empty())
      observer_.before(kMethodName<Method>, [&arg] { return shapes_of(arg); });
    if (workers_.size() == 1) return std::invoke(Method, *workers_.front(), arg);
    auto parts = Dispatch<Arg>::split(arg, workers_.size());
    std::vector<std::future<Result>> pending;
    for (size_t rank = 0; rank < workers_.size(); ++rank)
      pending.push_back(
          std::async(std::launch::async, [&, rank] { return std::invoke(Method, *workers_[rank], parts[rank]); }));
    for (auto& result : pending) result.wait();
    std::vector<Result> results;
    for (auto& result : pending) results.push_back(result.get());
    return Dispatch<Result>::merge(std::move(results));
  }

 private:
  class Phase {
   public:
    Phase(const CallObserver& observer, std::string_view name) : progress_(observer.progress) {
      if (observer.timer != nullptr) scope_ = std::make_unique<ScopeHolder>(*observer.timer, name);
      if (progress_ != nullptr) progress_->begin_phase(name, 0);
    }
    ~Phase() {
      if (progress_ != nullptr) progress_->end_phase();
    }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    struct ScopeHolder {
      ScopeHolder(PhaseTimer& timer, std::string_view name) : scope(timer.scope(name)) {}
      PhaseTimer::Scope scope;
    };
    Progress* progress_;
    std::unique_ptr<ScopeHolder> scope_;
  };

  std::vector<std::shared_ptr<Worker>> workers_;
  CallObserver observer_;
};

}  // namespace tandem
