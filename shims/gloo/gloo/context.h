// The torch wheel exports c10d::ProcessGroupGloo but ships no Gloo headers. These files declare what its header names,
// which is enough to make a group and call it through c10d. No Gloo type is made or derived from here.
#pragma once
#include <chrono>
namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
