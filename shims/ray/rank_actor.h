// The Ray side of a worker (_GLIBCXX_USE_CXX11_ABI=0): an actor that starts one process and watches it as
// control/runtime_local.cc does, which is compiled into this library once more.
#pragma once

#include <ray/api.h>

#include <memory>
#include <string>
#include <vector>

static_assert(_GLIBCXX_USE_CXX11_ABI == 0,
              "libray_api.so has the old ABI of std::string; with the new one Init aborts");

using Bytes = std::vector<char>;

// Ray can hand back the bytes of its own error object as if they were a value, so a reply without this mark is none.
inline constexpr char kMark[] = "TANDEM1:";
inline constexpr char kErrorMark[] = "TANDEM0:";

class RankActor {
 public:
  static RankActor* Create();
  // Replies are kMark and the result, or kErrorMark and the reason.
  Bytes Start(std::string spec, int64_t heartbeat_ms);
  Bytes Status();
  Bytes End(int64_t grace_ms);

 private:
  struct State;
  std::shared_ptr<State> state_;
};
