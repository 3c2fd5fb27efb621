// perf/mfu/*: the share of what the devices can reach that a step's work needs (model FLOP utilization, Chowdhery et
// al., arXiv:2204.02311), by the operations of model/flops.h.
#pragma once

#include <optional>

#include "config/run_config.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "observe/timing.h"

namespace tandem {

// TFLOP/s of one device that computes as `policy` does; nothing where it cannot be told, or where `peak_tflops` is 0.
// On the CPU it takes some 20 ms.
std::optional<double> peak_tflops(const RunConfig& config, const Decoder& policy);

// perf/mfu/actor (the update), perf/mfu/actor_infer (the sampling, validation left out) and perf/mfu/critic, by the
// *_tflop and the phase times that are there. `peak`: of all devices together.
Metrics utilization(const Metrics& step, const PhaseTimer& timer, double peak);

}  // namespace tandem
