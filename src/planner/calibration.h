// From what was measured to factors on the parts of the cost model. A phase's factors are the least squares of relative
// errors, none negative, drawn towards one common factor where the measurements do not tell parts apart.
#pragma once

#include <array>
#include <span>
#include <string>

#include "planner/cost_model.h"

namespace tandem {

struct Measured {
  Setting setting;
  std::array<double, kNumPhases> seconds{};  // 0: not measured
  std::string source;
};

struct Calibration {
  PhaseParts factors;
  std::array<int, kNumPhases> points{};          // measurements of each phase
  std::array<double, kNumPhases> worst_error{};  // relative, of the fit at its own points
  Calibration();                                 // all factors 1

  double seconds(const PhaseParts& parts, Phase phase) const;
};

Calibration calibrate(std::span<const Measured> measured);

}  // namespace tandem
