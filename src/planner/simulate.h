// A step's predicted times, and how they change with the number of devices.
#pragma once

#include <string>
#include <vector>

#include "planner/calibration.h"

namespace tandem {

struct Prediction {
  std::array<double, kNumPhases> seconds{};
  double step = 0;  // split: the longer of generation and training, which then run beside each other
  double samples_per_s = 0, tokens_per_s = 0;
};

Prediction predict(const Setting& setting, const Calibration& calibration);

// The same work a device on more of them: prompts grow with the devices, and so does data parallelism.
Setting scaled(const Setting& setting, int devices);

// Throughput a device against that of `base`, of the whole step and of single phases.
struct Efficiency {
  double step = 0, generate = 0, train = 0;
};
Efficiency efficiency(const Prediction& base, const Prediction& larger);

// Machines that are assumed where nothing is measured; ConfigError for another name.
// "h200", "h100", "a100", "cpu".
DeviceSpec device_named(const std::string& name);
// Between machines, of one device: "ib", "roce", "mixed", "loopback" (one machine's ranks). "mixed": as the slower of
// both, with the retransmissions of a fabric that is not lossless all over.
LinkSpec network_named(const std::string& name);
LinkSpec inside_of(const std::string& device);

}  // namespace tandem
