#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tandem {
namespace {

constexpr double kWorkspace = 5.0 * (1 << 30), kLeastActivations = 2.0 * (1 << 30);
constexpr double kUsable = 0.92;  // of a device's memory: the rest is the driver's and lost to fragments

std::vector<int> divisors(int n, int most) {
  std::vector<int> out;
  for (int d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

std::vector<Layout> training_layouts(const ModelShape& m, const ClusterSpec& c, int devices) {
  std::vector<Layout> out;
  for (const int tp : divisors(devices, std::min<int>(c.per_node, static_cast<int>(m.kv_heads)))) {
    for (const int pp : divisors(devices / tp, std::min<int>(16, static_cast<int>(m.layers)))) {
      if (!is_power_of_two(tp) || !is_power_of_two(pp)) continue;
      const int data = devices / tp / pp;
      for (const int shard : divisors(data, data)) {
        if (!is_power_of_two(shard) && shard != data) continue;
        out.push_back({.pp = pp, .dp_replicate = data / shard, .dp_shard = shard, .tp = tp});
      }
    }
  }
  return out;
}

// Splits of the devices: all for both, or some eighths for generation.
std::vector<std::pair<int, int>> device_splits(int devices) {
  std::vector<std::pair<int, int>> out{{devices, devices}};
  for (int eighths = 1; eighths < 8; ++eighths)
    if (devices * eighths % 8 == 0 && devices > 1)
      out.emplace_back(devices * eighths / 8, devices - devices * eighths / 8);
  return out;
}

// The first machines that this build can drive: one, with training and generation alike.
bool runs_today(const Setting& s) {
  const MappingSpec& map = s.mapping;
  const Layout& t = map.training;
  const bool one_kind = t.pp == 1 || t.pp == t.world();
  return !map.split && !map.offload && s.cluster.devices <= s.cluster.per_node && map.generation_tp == t.tp &&
         one_kind && (s.cluster.cores > 0 || s.cluster.devices == 1);
}

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

std::string why_not(const Setting& s, double generation, double training) {
  const double most = s.cluster.device.memory * kUsable;
  if (s.cluster.device.memory <= 0) return "";
  if (!s.mapping.split && generation + training - kWorkspace > most)
    return fmt::format("a device needs {} of {}", gib(generation + training - kWorkspace), gib(most));
  if (generation > most) return fmt::format("a generating device needs {} of {}", gib(generation), gib(most));
  if (training > most) return fmt::format("a training device needs {} of {}", gib(training), gib(most));
  return "";
}

void explain(const Setting& setting, Plan& plan, const std::vector<Candidate>& all) {
  size_t too_large = 0;
  for (const Candidate& candidate : all) too_large += !candidate.refused.empty();
  if (too_large > 0)
    plan.reasons.push_back(fmt::format("{} of {} mappings do not fit in memory", too_large, all.size()));
  if (plan.fitting.empty()) return;
  const Candidate& best = plan.fitting.front();
  const auto compare = [&](const std::string& what, auto differs) {
    const auto other = std::ranges::find_if(plan.fitting, differs);
    if (other == plan.fitting.end()) {
      plan.reasons.push_back(fmt::format("{}: none fits", what));
      return;
    }
    plan.reasons.push_back(fmt::format(
        "{}: {:.2f} s, {:+.1f} % ({}; generate {:.2f}, train {:.2f}, reshard {:.2f})", what, other->prediction.step,
        100 * (other->prediction.step / best.prediction.step - 1), describe(other->mapping),
        other->prediction.seconds[0], other->prediction.seconds[2], other->prediction.seconds[3]));
  };
  if (setting.cluster.devices > 1)
    compare(best.mapping.split ? "best colocated" : "best split",
            [&](const Candidate& c) { return c.mapping.split != best.mapping.split; });
  if (setting.cluster.devices > 1)
    compare("best with another generation tp",
            [&](const Candidate& c) { return c.mapping.generation_tp != best.mapping.generation_tp; });
  if (setting.cluster.devices > 1)
    compare("best with another training layout",
            [&](const Candidate& c) { return !(c.mapping.training == best.mapping.training); });
  compare(best.mapping.offload ? "best without offload" : "best with offload",
          [&](const Candidate& c) { return c.mapping.offload != best.mapping.offload; });
  if (!best.runs_today) compare("best that this build runs today", [](const Candidate& c) { return c.runs_today; });
}

}  // namespace

std::string describe(const MappingSpec& map) {
  const std::string where =
      map.split ? fmt::format("split {} generate + {} train", map.generation_devices, map.training_devices)
                : fmt::format("colocated on {}", map.training_devices);
  return fmt::format("{}; generate tp{} dp{}; train tp{} pp{} shard{} x{}{}", where, map.generation_tp,
                     map.generation_devices / map.generation_tp, map.training.tp, map.training.pp,
                     map.training.dp_shard, map.training.dp_replicate, map.offload ? "; offload" : "");
}

std::pair<double, double> bytes_needed(const Setting& s) {
  const auto& [m, c, w, map] = s;
  const double parameters = static_cast<double>(m.parameters), values = static_cast<double>(c.device.value_bytes);
  const Layout& t = map.training;
  const double share = parameters / (t.tp * t.pp * t.dp_shard);
  const double sequences = std::min(w.most_sequences, w.samples() * map.generation_tp / map.generation_devices);
  const double cache = sequences * (w.prompt_tokens / w.samples_per_prompt + w.response_tokens) * values *
                       static_cast<double>(m.kv_values_per_token()) / map.generation_tp;
  // Decoding with less than a quarter of the sequences at once is no plan.
  const double generation = values * parameters / map.generation_tp + cache / 4 + kWorkspace;
  const double roles = w.critic ? 2 : 1;
  const double window = t.dp_shard > 1 ? 2.0 * static_cast<double>(m.block_parameters()) / t.tp : 0;
  const double weights = map.split ? values * share : 0;  // colocated: generation's are the same ones
  const double state = map.offload ? 0 : 12 * share;
  double training = roles * (weights + state + 4 * share + (values + 4) * window) + kLeastActivations + kWorkspace;
  if (w.reference) training += values * share;
  return {generation, training};
}

Plan plan_mapping(const Setting& setting, const Calibration& calibration) {
  std::vector<Candidate> all;
  const ClusterSpec& c = setting.cluster;
  for (const auto& [generating, training] : device_splits(c.devices)) {
    const bool split = c.devices > 1 && generating + training == c.devices;
    for (const int tp : divisors(generating, std::min<int>(c.per_node, static_cast<int>(setting.model.kv_heads)))) {
      if (!is_power_of_two(tp)) continue;
      for (const Layout& layout : training_layouts(setting.model, c, training)) {
        for (const bool offload : {false, true}) {
          Setting s = setting;
          s.mapping = {generating, training, split, tp, layout, offload};
          Candidate candidate{s.mapping, predict(s, calibration), 0, 0, "", runs_today(s)};
          std::tie(candidate.generation_bytes, candidate.training_bytes) = bytes_needed(s);
          candidate.refused = why_not(s, candidate.generation_bytes, candidate.training_bytes);
          all.push_back(std::move(candidate));
        }
      }
    }
  }
  Plan plan;
  plan.searched = all.size();
  for (const Candidate& candidate : all)
    if (candidate.refused.empty()) plan.fitting.push_back(candidate);
  // Equal times: what holds less comes first.
  std::ranges::stable_sort(plan.fitting, {}, [](const Candidate& x) {
    return std::pair(x.prediction.step, x.generation_bytes + x.training_bytes);
  });
  explain(setting, plan, all);
  return plan;
}

}  // namespace tandem
