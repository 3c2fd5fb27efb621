#include "preflight/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tandem {

std::string report_text(const Findings& findings) {
  std::string out;
  size_t warnings = 0, failures = 0;
  for (const Finding& finding : findings) {
    out += fmt::format("{}  {:<10}{}\n", to_string(finding.verdict), finding.check, finding.why);
    for (const std::string& detail : finding.details) out += fmt::format("{:16}{}\n", "", detail);
    if (!finding.remedy.empty()) out += fmt::format("{:16}-> {}\n", "", finding.remedy);
    warnings += finding.verdict == Verdict::kWarn, failures += finding.verdict == Verdict::kFail;
  }
  return out + fmt::format("{}: {} checks, {} warnings, {} failures", to_string(worst(findings)), findings.size(),
                           warnings, failures);
}

std::string report_json(const Findings& findings, const NodeFacts& node) {
  nlohmann::ordered_json out;
  out["verdict"] = to_string(worst(findings));
  out["checks"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    out["checks"].push_back({{"check", finding.check},
                             {"verdict", to_string(finding.verdict)},
                             {"why", finding.why},
                             {"remedy", finding.remedy},
                             {"details", finding.details}});
  out["node"] = nlohmann::ordered_json::parse(node_json(node));
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tandem
