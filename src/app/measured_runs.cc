#include "app/measured_runs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/memory_sizes.h"
#include "app/options.h"
#include "app/ranks.h"
#include "base/error.h"
#include "base/file.h"
#include "config/load.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kActivationBytes = 64 << 20;  // that a run on the CPU gives a micro-batch

std::vector<json> json_lines(const fs::path& file) {
  std::vector<json> out;
  const std::string text = read_file(file);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const json line = json::parse(text.begin() + static_cast<ptrdiff_t>(begin),
                                  text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (line.is_object()) out.push_back(line);
    begin = end + 1;
  }
  return out;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// Of steps that are no validation; the first one, which makes the optimizer and warms the memory, is left out where
// there are others.
double typical(const std::vector<json>& steps, const char* key) {
  std::vector<double> values;
  for (const json& step : steps)
    if (step.contains(key)) values.push_back(step.at(key).get<double>());
  if (values.size() > 1) values.erase(values.begin());
  return median(values);
}

void set_training(Setting& s, const Layout& layout, int generation_tp) {
  s.cluster.devices = layout.world();
  s.mapping.training = layout;
  s.mapping.generation_devices = s.mapping.training_devices = layout.world();
  s.mapping.generation_tp = generation_tp;
}

Measured run_of(const fs::path& file, const std::vector<json>& steps, const ClusterSpec& cluster) {
  const fs::path yaml = file.parent_path() / "config.yaml";
  const Config config = load_config_with_notes({yaml}, {}).config;
  const MemoryQuestion question = memory_question(config);
  Measured out;
  out.source = file.string();
  Setting& s = out.setting;
  s.model = question.roles.front().model;
  s.cluster = cluster;
  const Layout layout = run_layout(config);
  set_training(s, layout, layout.tp);
  if (config.trainer.num_threads > 0 && cluster.cores > 0)
    s.cluster.threads = static_cast<double>(config.trainer.num_threads);
  const DerivedSizes sizes = derived_sizes(config);
  WorkloadSpec& w = s.work;
  w.prompts = static_cast<double>(sizes.prompts_per_step);
  w.samples_per_prompt = static_cast<double>(config.actor_rollout_ref.rollout.n);
  w.prompt_tokens = typical(steps, "prompt_length/mean");
  w.response_tokens = typical(steps, "response_length/mean"),
  w.longest_response = typical(steps, "response_length/max");
  w.optimizer_steps = static_cast<double>(sizes.optimizer_steps_per_step);
  w.micro_batch_tokens = static_cast<double>(question.work.micro_batch_tokens);
  w.activation_bytes = cluster.cores > 0 ? kActivationBytes : 0;
  w.most_sequences = static_cast<double>(config.actor_rollout_ref.rollout.max_num_seqs);
  w.reference = needs_reference(config), w.critic = needs_critic(config);
  out.seconds[static_cast<size_t>(Phase::kGenerate)] = typical(steps, "timing_s/gen");
  out.seconds[static_cast<size_t>(Phase::kTrain)] = typical(steps, "timing_s/update_actor");
  out.seconds[static_cast<size_t>(Phase::kReference)] = typical(steps, "timing_s/ref");
  return out;
}

Measured bench_of(const fs::path& file, const std::vector<json>& lines, const ClusterSpec& cluster) {
  const json& setup = *std::ranges::find_if(lines, [](const json& line) { return line.value("name", "") == "setup"; });
  Measured out;
  out.source = file.string();
  Setting& s = out.setting;
  s.model = shape_of(load_model_config(setup.at("model").get<std::string>()));
  s.cluster = cluster;
  if (setup.at("threads") > 0 && cluster.cores > 0) s.cluster.threads = setup.at("threads").get<double>();
  const int ranks = setup.value("ranks", 1), replicas = setup.value("replicas", 1);
  set_training(s, {.dp_replicate = replicas, .dp_shard = ranks / replicas}, 1);
  WorkloadSpec& w = s.work;
  w.prompts = setup.at("prompts"), w.samples_per_prompt = setup.at("samples");
  w.prompt_tokens = setup.at("prompt_tokens");
  w.response_tokens = w.longest_response = setup.at("new_tokens");
  w.micro_batch_tokens = setup.at("micro_tokens");
  w.activation_bytes = setup.at("activation_bytes");
  w.most_sequences = w.samples();
  std::vector<double> generate, train;
  for (const json& line : lines) {
    if (line.value("name", "") == "rollout") generate.push_back(line.at("seconds"));
    if (line.value("name", "") == "train") train.push_back(line.at("seconds"));
    if (line.value("name", "") == "step") generate.push_back(line.at("rollout")), train.push_back(line.at("update"));
  }
  out.seconds[static_cast<size_t>(Phase::kGenerate)] = median(generate);
  out.seconds[static_cast<size_t>(Phase::kTrain)] = median(train);
  return out;
}

}  // namespace

std::vector<Measured> read_measured(const fs::path& file, const ClusterSpec& cluster) {
  const std::vector<json> lines = json_lines(file);
  const auto is_setup = [](const json& line) { return line.value("name", "") == "setup"; };
  const auto is_step = [](const json& line) { return line.contains("timing_s/gen"); };
  try {
    std::vector<json> steps;
    std::ranges::copy_if(lines, std::back_inserter(steps), is_step);
    if (!steps.empty()) return {run_of(file, steps, cluster)};
    if (std::ranges::any_of(lines, is_setup)) return {bench_of(file, lines, cluster)};
  } catch (const json::exception& error) {
    throw DataError(file.string() + ": a line is not as tandem writes it (" + error.what() + "); measure again");
  }
  throw DataError(file.string() +
                  " holds no steps of a run and no lines of tandem bench; give metrics.jsonl of a run "
                  "folder, or the output of tandem bench step");
}

}  // namespace tandem
