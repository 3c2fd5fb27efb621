#include "planner/calibration.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem {
namespace {

constexpr double kPull = 1e-4;  // towards the common factor, against one measurement's squared relative error
constexpr int kSweeps = 20000;

struct Row {
  Parts parts;  // each over the measured seconds
};

// Coordinate descent on Σ (Σ factor · part − 1)² + pull · Σ (factor / common − 1)², factors ≥ 0.
Parts fit(const std::vector<Row>& rows) {
  double common = 0;
  for (const Row& row : rows) common += 1 / std::max(1e-12, sum(row.parts)) / static_cast<double>(rows.size());
  Parts factors;
  factors.fill(common);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;
    for (size_t j = 0; j < kNumParts; ++j) {
      double slope = kPull / common, curve = kPull / (common * common);
      for (const Row& row : rows) {
        double rest = 1;
        for (size_t i = 0; i < kNumParts; ++i)
          if (i != j) rest -= factors[i] * row.parts[i];
        slope += rest * row.parts[j], curve += row.parts[j] * row.parts[j];
      }
      const double better = std::max(0.0, slope / curve);
      moved = std::max(moved, std::abs(better - factors[j]) / common);
      factors[j] = better;
    }
    if (moved < 1e-12) break;
  }
  return factors;
}

}  // namespace

Calibration::Calibration() {
  for (Parts& parts : factors) parts.fill(1);
}

double Calibration::seconds(const PhaseParts& parts, Phase phase) const {
  const auto p = static_cast<size_t>(phase);
  double total = 0;
  for (size_t i = 0; i < kNumParts; ++i) total += factors[p][i] * parts[p][i];
  return total;
}

Calibration calibrate(std::span<const Measured> measured) {
  Calibration out;
  for (size_t p = 0; p < kNumPhases; ++p) {
    std::vector<Row> rows;
    for (const Measured& m : measured) {
      Row row{cost_of(m.setting)[p]};
      if (m.seconds[p] <= 0 || sum(row.parts) <= 0) continue;
      for (double& part : row.parts) part /= m.seconds[p];
      rows.push_back(row);
    }
    out.points[p] = static_cast<int>(rows.size());
    if (rows.empty()) continue;
    out.factors[p] = fit(rows);
    for (const Row& row : rows) {
      double predicted = 0;
      for (size_t i = 0; i < kNumParts; ++i) predicted += out.factors[p][i] * row.parts[i];
      out.worst_error[p] = std::max(out.worst_error[p], std::abs(predicted - 1));
    }
  }
  return out;
}

}  // namespace tandem
