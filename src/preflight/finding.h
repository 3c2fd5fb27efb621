// What a check says: whether a run may start, why, and what to do about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Verdict : uint8_t {
  kPass,
  kWarn,  // a run may start, but hardly as it was meant
  kFail,  // it cannot work
};
const char* to_string(Verdict verdict);

struct Finding {
  std::string check;  // "keys", "memory", ...
  Verdict verdict = Verdict::kPass;
  std::string why;     // one line
  std::string remedy;  // what to do; empty where all is well
  std::vector<std::string> details;

  // A later, worse verdict takes the place of the one before; an equal or better one becomes a detail.
  void worsen(Verdict to, std::string new_why, std::string new_remedy);
};

using Findings = std::vector<Finding>;
Verdict worst(const Findings& findings);

// What `look` returns is a pass; an Error that it throws is a failure with the error's own words.
Finding attempted(std::string check, const std::function<std::string()>& look, std::string remedy);

std::string gib_text(int64_t bytes);  // "1.5 GiB"

}  // namespace tandem
