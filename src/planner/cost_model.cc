#include "planner/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem {
namespace {

constexpr double kGradientBytes = 4, kStateBytes = 12;

// The rates that one device, or a rank's share of the cores, reaches.
struct Rates {
  double flops, memory, inside, between, latency_inside, latency_between, pass;
};

Rates rates_of(const ClusterSpec& c, int ranks) {
  const double share = c.cores > 0 ? cores_of_a_rank(c, ranks) : 1;
  return {c.device.flops * share,       c.device.memory_per_s * share, c.inside.per_s * share,
          c.between.per_s * share,      c.inside.latency / share,      c.between.latency / share,
          c.device.pass_seconds / share};
}

// An exchange in which each of `ranks` receives `bytes` in `messages` rounds; they lie within `span` neighbours.
void exchange(Parts& parts, const ClusterSpec& c, const Rates& rates, int ranks, int span, double bytes,
              double messages) {
  if (ranks <= 1) return;
  const bool inside = span <= c.per_node;
  at(parts, Part::kExchange) += bytes / (inside ? rates.inside : rates.between);
  at(parts, Part::kMessages) += messages * (inside ? rates.latency_inside : rates.latency_between);
}

// Where a device computes beside what it reads, only the longer of them takes time.
void overlap(Parts& parts, Part a, Part b) { (at(parts, a) < at(parts, b) ? at(parts, a) : at(parts, b)) = 0; }

// What of an exchange is not hidden behind computing: all beyond the computing's time, and a block at either end.
double exposed(double exchange, double compute, double blocks) {
  return std::max(0.0, exchange - compute) + exchange / blocks;
}

// The most of n draws lies about this many standard deviations above the mean (of a normal distribution).
double most_of(double n) { return n > 1 ? std::sqrt(2 * std::log(n)) : 0; }

double longest_of(const WorkloadSpec& w) {
  const double most = std::max(w.longest_response, w.response_tokens);
  if (w.length_spread <= 0) return most;
  return std::min(most, w.response_tokens * (1 + w.length_spread * most_of(w.samples())));
}

double parameters_in_products(const ModelShape& m) {
  return static_cast<double>(m.layers * m.block_parameters() + m.head_parameters());
}

// Scores and values of attention for a query that sees `keys`.
double attention_flops(const ModelShape& m, double keys) {
  return 4.0 * static_cast<double>(m.layers * m.q_size()) * keys;
}

Parts generate(const Setting& s) {
  const auto& [m, c, w, map] = s;
  Parts parts{};
  const Rates rates = rates_of(c, map.generation_devices);
  const int tp = map.generation_tp, replicas = std::max(1, map.generation_devices / tp);
  const double prompts = std::ceil(w.prompts / replicas), samples = prompts * w.samples_per_prompt;
  const double waves = std::max(1.0, samples / w.most_sequences), passes = waves * longest_of(w);
  const double values = static_cast<double>(c.device.value_bytes);
  // The replica whose responses happen to be longest.
  const double tokens =
      samples * w.response_tokens * (1 + w.length_spread * most_of(replicas) / std::sqrt(std::max(1.0, samples)));
  at(parts, Part::kWeights) = passes * values * parameters_in_products(m) / tp / rates.memory;
  const double keys = w.prompt_tokens + w.response_tokens / 2;
  at(parts, Part::kCache) = tokens * keys * values * static_cast<double>(m.kv_values_per_token()) / tp / rates.memory;
  at(parts, Part::kDecode) = tokens * (2 * parameters_in_products(m) + attention_flops(m, keys)) / tp / rates.flops;
  const double blocks = static_cast<double>(m.layers * m.block_parameters());
  at(parts, Part::kPrefill) =
      prompts * w.prompt_tokens * (2 * blocks + attention_flops(m, w.prompt_tokens / 2)) / tp / rates.flops;
  at(parts, Part::kPasses) = passes * rates.pass;
  const double sums = 2.0 * static_cast<double>(m.layers);
  exchange(parts, c, rates, tp, tp,
           sums * (tokens + prompts * w.prompt_tokens) * static_cast<double>(m.hidden) * values * 2 * (tp - 1) / tp,
           passes * sums * 2 * (tp - 1));
  if (c.device.overlaps) {
    at(parts, Part::kWeights) += at(parts, Part::kCache);  // both are read from the same memory
    at(parts, Part::kCache) = 0;
    overlap(parts, Part::kWeights, Part::kDecode);
  }
  return parts;
}

// Forward (and backward) of a share of the samples.
void add_passes(Parts& parts, const Setting& s, const Rates& rates, bool backward) {
  const auto& [m, c, w, map] = s;
  const Layout& layout = map.training;
  const int data = layout.dp_replicate * layout.dp_shard;
  const double values = static_cast<double>(c.device.value_bytes);
  const double steps = backward ? w.optimizer_steps : 1;
  const MicroBatches mine = micro_batches(m, w, c.device.value_bytes, w.samples() / steps / data);
  const double count = mine.count * steps, tokens = mine.tokens * steps;
  const double work = backward ? (w.recompute ? 4 : 3) : 1;
  const double keys = w.prompt_tokens + w.response_tokens / 2;
  const double split = layout.tp * layout.pp;
  at(parts, Part::kCompute) +=
      work * tokens * (2 * parameters_in_products(m) + attention_flops(m, keys)) / split / rates.flops;
  // A pipeline's stages wait while it fills and drains.
  at(parts, Part::kCompute) *= 1 + (layout.pp - 1) / std::max(1.0, count);
  at(parts, Part::kPasses) += count * work * rates.pass;
  const double part = static_cast<double>(m.parameters) / split;
  const int shard = layout.dp_shard;
  const double others = static_cast<double>(shard - 1) / shard, blocks = static_cast<double>(m.layers) + 1;
  const double gathers = backward ? 2 : 1;
  Parts sharding{}, copying{};
  exchange(sharding, c, rates, shard, layout.tp * shard,
           count * part * others * (gathers * values + (backward ? kGradientBytes : 0)),
           count * blocks * (gathers + (backward ? 1 : 0)) * (shard - 1));
  if (backward) {
    const double share = part / shard, copies = layout.dp_replicate;
    exchange(copying, c, rates, layout.dp_replicate, layout.tp * data,
             steps * share * kGradientBytes * 2 * (copies - 1) / copies, steps * 2 * (copies - 1));
  }
  double& sharded = at(sharding, Part::kExchange);
  double& copied = at(copying, Part::kExchange);
  if (c.device.overlaps) {  // copies are brought together beside the last micro-batch's backward pass
    const double computing = at(parts, Part::kCompute);
    sharded = exposed(sharded, computing, blocks * count);
    copied = exposed(copied, computing * (work - 1) / work / mine.count, blocks);
  }
  for (size_t i = 0; i < kNumParts; ++i) parts[i] += sharding[i] + copying[i];
  const double sums = (backward ? 4.0 : 2.0) * static_cast<double>(m.layers);
  exchange(parts, c, rates, layout.tp, layout.tp,
           sums * tokens * static_cast<double>(m.hidden) * values * 2 * (layout.tp - 1) / layout.tp,
           count * sums * 2 * (layout.tp - 1));
  exchange(parts, c, rates, layout.pp, layout.world(),
           (backward ? 2 : 1) * tokens * static_cast<double>(m.hidden) * values, 2 * count);
}

Parts train(const Setting& s) {
  const auto& [m, c, w, map] = s;
  Parts parts{};
  const Layout& layout = map.training;
  const Rates rates = rates_of(c, map.training_devices);
  add_passes(parts, s, rates, true);
  const double share = static_cast<double>(m.parameters) / (layout.tp * layout.pp * layout.dp_shard);
  const double state = share * (kStateBytes * 2 + kGradientBytes);  // read and written
  at(parts, Part::kOptimizer) = w.optimizer_steps * state / rates.memory;
  if (map.offload) at(parts, Part::kOptimizer) += w.optimizer_steps * 2 * share * kStateBytes / c.device.host_per_s;
  if (w.critic)
    for (double& part : parts) part *= 2;
  return parts;
}

Parts reference(const Setting& s) {
  Parts parts{};
  const double passes = (s.work.reference ? 1 : 0) + (s.work.critic ? 1 : 0);  // the critic's values
  if (passes == 0) return parts;
  add_passes(parts, s, rates_of(s.cluster, s.mapping.training_devices), false);
  for (double& part : parts) part *= passes;
  return parts;
}

// New weights for generation: each device turns its share into its part of a replica.
Parts reshard(const Setting& s) {
  const auto& [m, c, w, map] = s;
  Parts parts{};
  const Layout& from = map.training;
  // Shards of memory and pieces of products do not nest: of its piece a device has what its shard happens to hold.
  const double need = 1.0 / map.generation_tp;
  const double held = std::min(1.0, static_cast<double>(map.generation_tp) / from.tp) / (from.dp_shard * from.pp);
  const double missing = map.split ? need : need * (1 - held);
  const int devices = map.split ? map.generation_devices + map.training_devices : map.training_devices;
  if (devices > 1 && missing > 0)
    exchange(parts, c, rates_of(c, devices), devices, devices,
             missing * static_cast<double>(m.parameters) * static_cast<double>(c.device.value_bytes),
             static_cast<double>(m.layers) + 1);
  return parts;
}

}  // namespace

const char* to_string(Part part) {
  constexpr const char* kNames[] = {"weights",  "cache",    "decode",    "prefill", "compute",
                                    "exchange", "messages", "optimizer", "passes"};
  return kNames[static_cast<size_t>(part)];
}

const char* to_string(Phase phase) {
  constexpr const char* kNames[] = {"generate", "reference", "train", "reshard"};
  return kNames[static_cast<size_t>(phase)];
}

double sum(const Parts& parts) { return std::accumulate(parts.begin(), parts.end(), 0.0); }

double cores_of_a_rank(const ClusterSpec& c, int ranks) {
  const double here = std::min(ranks, c.per_node);
  const double threads = std::max(1.0, std::floor((c.threads > 0 ? c.threads : c.cores) / here));
  return std::min(threads, c.cores / here);
}

MicroBatches micro_batches(const ModelShape& m, const WorkloadSpec& w, int64_t value_bytes, double samples) {
  const double per_token = static_cast<double>(m.activations_per_token() * value_bytes);
  double most = w.micro_batch_tokens;
  if (w.activation_bytes > 0) most = std::min(most, std::max(64.0, w.activation_bytes / per_token));
  MicroBatches out{1, 0};
  double in_this = 0;
  const auto count = static_cast<int64_t>(std::ceil(samples));
  const auto group = static_cast<int64_t>(w.samples_per_prompt);
  for (int64_t i = 0; i < count; ++i) {
    const bool new_prompt = i % group == 0 || in_this == 0;
    double tokens = w.response_tokens + (new_prompt ? w.prompt_tokens : 0);
    if (in_this > 0 && in_this + tokens > most) {
      ++out.count, in_this = 0;
      tokens = w.response_tokens + w.prompt_tokens;
    }
    in_this += tokens, out.tokens += tokens;
  }
  return out;
}

PhaseParts cost_of(const Setting& setting) {
  PhaseParts out{};
  out[static_cast<size_t>(Phase::kGenerate)] = generate(setting);
  out[static_cast<size_t>(Phase::kReference)] = reference(setting);
  out[static_cast<size_t>(Phase::kTrain)] = train(setting);
  out[static_cast<size_t>(Phase::kReshard)] = reshard(setting);
  return out;
}

}  // namespace tandem
