#include "preflight/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tandem {

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "";
}

void Finding::worsen(Verdict to, std::string new_why, std::string new_remedy) {
  if (to <= verdict) {
    details.push_back(std::move(new_why));
    return;
  }
  if (verdict != Verdict::kPass) details.push_back(why);
  verdict = to, why = std::move(new_why), remedy = std::move(new_remedy);
}

Verdict worst(const Findings& findings) {
  Verdict verdict = Verdict::kPass;
  for (const Finding& finding : findings) verdict = std::max(verdict, finding.verdict);
  return verdict;
}

Finding attempted(std::string check, const std::function<std::string()>& look, std::string remedy) {
  try {
    std::string seen = look();
    return {std::move(check), Verdict::kPass, std::move(seen), "", {}};
  } catch (const Error& error) {
    return {std::move(check), Verdict::kFail, error.what(), std::move(remedy), {}};
  }
}

std::string gib_text(int64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return gib >= 0.1 ? fmt::format("{:.2f} GiB", gib) : fmt::format("{:.1f} MiB", gib * 1024);
}

}  // namespace tandem
