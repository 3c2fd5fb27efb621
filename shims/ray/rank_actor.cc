#include "rank_actor.h"

#include "control/runtime.h"
#include "control/worker_json.h"

struct RankActor::State {
  std::unique_ptr<tandem::Runtime> runtime;
};

namespace {

Bytes reply(const char* mark, const std::string& text) {
  const std::string whole = mark + text;
  return {whole.begin(), whole.end()};
}

template <class Fn>
Bytes guarded(const Fn& fn) {
  try {
    return reply(kMark, fn());
  } catch (const std::exception& error) {
    return reply(kErrorMark, error.what());
  }
}

}  // namespace

RankActor* RankActor::Create() {
  auto* actor = new RankActor;  // Ray owns it; nothing here may throw
  actor->state_ = std::make_shared<State>();
  return actor;
}

Bytes RankActor::Start(std::string spec, int64_t heartbeat_ms) {
  return guarded([&] {
    state_->runtime = tandem::local_processes({.heartbeat_timeout = std::chrono::milliseconds(heartbeat_ms)});
    state_->runtime->start({tandem::worker_spec(spec)});
    return std::string();
  });
}

// What was lost as it was then: a hung process is ended at once, and its end says less.
Bytes RankActor::Status() {
  return guarded([&] {
    const auto lost = state_->runtime->lost();
    return tandem::to_json(lost ? std::vector{*lost} : state_->runtime->workers());
  });
}

Bytes RankActor::End(int64_t grace_ms) {
  return guarded([&] {
    if (state_->runtime) state_->runtime->end(std::chrono::milliseconds(grace_ms));
    return std::string();
  });
}

RAY_REMOTE(RankActor::Create, &RankActor::Start, &RankActor::Status, &RankActor::End);
