// The search for the mapping that makes a step shortest among those that fit.
#pragma once

#include <string>
#include <vector>

#include "planner/simulate.h"

namespace tandem {

struct Candidate {
  MappingSpec mapping;
  Prediction prediction;
  double generation_bytes = 0, training_bytes = 0;  // least a device needs; colocated: both phases' in one
  std::string refused;                              // why it does not fit; empty: it does
  bool runs_today = false;                          // by this build, on one machine
};

struct Plan {
  std::vector<Candidate> fitting;  // the fastest first
  size_t searched = 0;
  std::vector<std::string> reasons;  // of the best against its nearest alternatives; of what did not fit
};

// All of: colocated or split in eighths; tp in both phases up to a machine; pipelines; sharding groups up to all data
// ranks; with and without offload. `setting.mapping` is not read.
Plan plan_mapping(const Setting& setting, const Calibration& calibration);

std::string describe(const MappingSpec& mapping);

// Least bytes that a device must hold for a mapping: {generation, training}.
std::pair<double, double> bytes_needed(const Setting& setting);

}  // namespace tandem
