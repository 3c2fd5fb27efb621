// Findings for people and for programs.
#pragma once

#include <string>

#include "preflight/finding.h"
#include "preflight/versions.h"

namespace tandem {

// A line a check, its details and remedy below it, the verdict at the end.
std::string report_text(const Findings& findings);

// {"verdict", "checks": [{"check", "verdict", "why", "remedy", "details"}], "node": what versions.h compares}
std::string report_json(const Findings& findings, const NodeFacts& node);

}  // namespace tandem
