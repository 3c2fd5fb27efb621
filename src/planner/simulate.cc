#include "planner/simulate.h"

#include <algorithm>

#include "base/error.h"

namespace tandem {

Prediction predict(const Setting& s, const Calibration& calibration) {
  Prediction out;
  const PhaseParts parts = cost_of(s);
  for (size_t p = 0; p < kNumPhases; ++p) out.seconds[p] = calibration.seconds(parts, static_cast<Phase>(p));
  const auto of = [&](Phase phase) { return out.seconds[static_cast<size_t>(phase)]; };
  const double learning = of(Phase::kReference) + of(Phase::kTrain) + s.work.other_seconds;
  out.step = of(Phase::kReshard) + (s.mapping.split && s.work.one_step_behind ? std::max(of(Phase::kGenerate), learning)
                                                                              : of(Phase::kGenerate) + learning);
  out.samples_per_s = s.work.samples() / out.step;
  out.tokens_per_s = out.samples_per_s * (s.work.response_tokens + s.work.prompt_tokens);
  return out;
}

Setting scaled(const Setting& from, int devices) {
  Setting s = from;
  const double factor = static_cast<double>(devices) / from.cluster.devices;
  s.cluster.devices = devices;
  s.work.prompts *= factor;
  const auto grown = [&](int count) { return std::max(1, static_cast<int>(count * factor)); };
  s.mapping.generation_devices = grown(from.mapping.generation_devices);
  s.mapping.training_devices = grown(from.mapping.training_devices);
  // A sharding group stays as large as it was; there are more of them.
  s.mapping.training.dp_replicate = grown(from.mapping.training.dp_replicate);
  return s;
}

Efficiency efficiency(const Prediction& base, const Prediction& larger) {
  // The work a device is the same, so times would be.
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 1; };
  const auto of = [](const Prediction& p, Phase phase) { return p.seconds[static_cast<size_t>(phase)]; };
  return {ratio(base.step, larger.step), ratio(of(base, Phase::kGenerate), of(larger, Phase::kGenerate)),
          ratio(of(base, Phase::kTrain), of(larger, Phase::kTrain))};
}

DeviceSpec device_named(const std::string& name) {
  // Products at about half of the data sheet's dense bf16 rate, memory at nine tenths of its bandwidth.
  if (name == "h200") return {4.5e14, 4.3e12, 141e9, 5e10, 5e-4, 2, true};
  if (name == "h100") return {4.5e14, 3.0e12, 80e9, 5e10, 5e-4, 2, true};
  if (name == "a100") return {1.6e14, 1.8e12, 80e9, 2.5e10, 5e-4, 2, true};
  if (name == "cpu") return {5e10, 1e10, 0, 1e10, 1e-4, 4, false};
  throw ConfigError("--device " + name + " is not known; use h200, h100, a100 or cpu");
}

LinkSpec network_named(const std::string& name) {
  if (name == "ib") return {45e9, 3e-6};    // 400 Gb/s a device
  if (name == "roce") return {38e9, 6e-6};  // the same wires, congestion control by ECN and PFC
  if (name == "mixed") return {22e9, 12e-6};
  if (name == "loopback") return {1e9, 5e-5};
  throw ConfigError("--network " + name + " is not known; use ib, roce, mixed or loopback");
}

LinkSpec inside_of(const std::string& device) {
  if (device == "cpu") return network_named("loopback");
  return {device == "a100" ? 250e9 : 380e9, 2e-6};  // NVLink
}

}  // namespace tandem
