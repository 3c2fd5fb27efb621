// How long a step takes: a roofline of each phase from sizes, a machine and a mapping. Pure arithmetic, torch-free.
// Every phase is a sum of parts (reading weights, computing, exchanging ...), each a number of operations or bytes over
// a rate; calibration.h scales the parts to what was measured. docs/scaling.md lists the formulas. Units: seconds,
// bytes, floating-point operations, each per second for rates.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "planner/model_shape.h"

namespace tandem {

struct DeviceSpec {
  double flops = 0;         // that products reach
  double memory_per_s = 0;  // bytes read or written
  double memory = 0;        // bytes
  double host_per_s = 0;    // bytes to and from the host's memory, of one device
  double pass_seconds = 0;  // a pass costs at least this: launches, scheduling
  int64_t value_bytes = 2;  // of weights, cache and activations
  bool overlaps = true;     // memory and exchanges beside computing; a CPU core does one after another
};

struct LinkSpec {
  double per_s = 0;    // bytes that one device sends at once
  double latency = 0;  // of a message
};

struct ClusterSpec {
  std::string network;  // "nvlink", "ib", "roce", "mixed", "loopback"
  int devices = 1;      // on the CPU: ranks
  int per_node = 8;
  DeviceSpec device;  // on the CPU: of one core
  LinkSpec inside, between;
  // On the CPU: cores that all ranks of a node share, and threads of all of them together.
  double cores = 0, threads = 0;
};

struct WorkloadSpec {
  double prompts = 0, samples_per_prompt = 1;
  double prompt_tokens = 0, response_tokens = 0;  // means
  double longest_response = 0;  // of the limit, or of what was measured; decides how many passes decoding takes
  double length_spread = 0;     // standard deviation of lengths over their mean; 0: the longest occurs in every batch
  double optimizer_steps = 1;   // a step
  double micro_batch_tokens = 16384;
  double activation_bytes = 0;  // that bound a micro-batch too; 0: no bound
  double most_sequences = 256;  // decoded at once by one replica
  bool reference = false, critic = false, recompute = false;
  bool one_step_behind = false;  // split devices: generation of the next step beside training of this one
  double other_seconds = 0;      // scoring that is not hidden, advantages, logging

  double samples() const { return prompts * samples_per_prompt; }
};

struct MappingSpec {
  int generation_devices = 1, training_devices = 1;  // the same ones where colocated
  bool split = false;                                // on devices of their own
  int generation_tp = 1;
  Layout training;
  bool offload = false;  // masters and moments lie in the host's memory between optimizer steps
};

struct Setting {
  ModelShape model;
  ClusterSpec cluster;
  WorkloadSpec work;
  MappingSpec mapping;
};

enum class Part : uint8_t {
  kWeights,    // read by each decode pass
  kCache,      // keys and values read by each decode pass
  kDecode,     // products of decoding
  kPrefill,    // products of prompts
  kCompute,    // products of a forward or a forward and backward
  kExchange,   // bytes between devices
  kMessages,   // their latency
  kOptimizer,  // masters and moments read and written
  kPasses,     // fixed time of each pass
};
inline constexpr size_t kNumParts = 9;
const char* to_string(Part part);

enum class Phase : uint8_t { kGenerate, kReference, kTrain, kReshard };
inline constexpr size_t kNumPhases = 4;
const char* to_string(Phase phase);

using Parts = std::array<double, kNumParts>;
inline double& at(Parts& parts, Part part) { return parts[static_cast<size_t>(part)]; }
inline double at(const Parts& parts, Part part) { return parts[static_cast<size_t>(part)]; }
double sum(const Parts& parts);

// By phase; what does not occur is 0. Of the device that has most to do.
using PhaseParts = std::array<Parts, kNumPhases>;
PhaseParts cost_of(const Setting& setting);

// Cores that a rank has to itself: threads that it starts, and what of the node's cores is left to it.
double cores_of_a_rank(const ClusterSpec& cluster, int ranks);

// Micro-batches of a rank's share and the tokens that it computes: samples are not cut, and neighbours of a prompt
// share it within a micro-batch. `ranks`: that share the mini-batch.
struct MicroBatches {
  double count = 0, tokens = 0;
};
MicroBatches micro_batches(const ModelShape& model, const WorkloadSpec& work, int64_t value_bytes, double samples);

}  // namespace tandem
