// Methods that are held before they begin, for debugging. A breakpoint is a file <method>@<rank> of a folder: `tandem
// debug` makes and removes it, the process that it holds writes its arguments' shapes into it. Thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

inline constexpr std::string_view kBreakpointFolder = "breakpoints";  // of a run's folder

struct Breakpoint {
  std::string method;  // "actor.update"
  int rank = 0;
  std::string arguments;     // of the call that is held; empty: none is yet
  double held_seconds = -1;  // below 0: none is
};

class Breakpoints {
 public:
  explicit Breakpoints(std::filesystem::path folder) : folder_(std::move(folder)) {}  // need not be there

  // IoError where the file cannot be made.
  void set(std::string_view method, int rank) const;
  // Those of the method ("all": every one), of one rank or all; how many there were.
  size_t release(std::string_view method, std::optional<int> rank) const;
  std::vector<Breakpoint> list() const;

  bool any(std::string_view method) const;
  bool has(std::string_view method, int rank) const;
  // Returns when the method has no breakpoint, of this rank or of any (`rank`: nothing): ranks that work together wait
  // for each other here, not in an exchange that has a time limit. `arguments` are written down where it is held.
  void wait(std::string_view method, std::optional<int> rank, const std::function<std::string()>& arguments) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace tandem
