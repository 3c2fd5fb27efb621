// tandem simulate and tandem plan: how long a step would take on machines that need not be here, and which mapping
// makes it shortest.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/command.h"
#include "app/measured_runs.h"
#include "app/memory_sizes.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "planner/plan.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

struct PlanArguments {
  std::string model, device = "h200", network = "ib";
  int devices = 8, per_node = 8, top = 5;
  int generation_tp = 1, tp = 1, pp = 1, shard = 0, generation_devices = 0;
  bool one_step_behind = false, offload = false, reference = false, critic = false, recompute = true, json = false;
  double prompts = 512, samples = 8, prompt_tokens = 512, response_tokens = 2048, longest = 0, optimizer_steps = 1;
  double micro_tokens = 16384, sequences = 256, other_seconds = 0, length_spread = 0;
  double cores = 0, threads = 0, link_gb_per_s = 0, latency_us = 0;
  std::vector<int> scale;
  std::vector<std::string> calibrate;
};

ClusterSpec cluster_of(const PlanArguments& a) {
  ClusterSpec c;
  const bool cpu = a.device == "cpu";
  c.network = cpu ? "loopback" : a.network;
  c.devices = a.devices, c.per_node = cpu ? std::max(a.devices, a.per_node) : a.per_node;
  c.device = device_named(a.device);
  c.inside = inside_of(a.device), c.between = network_named(c.network);
  if (a.link_gb_per_s > 0) c.between.per_s = a.link_gb_per_s * 1e9;
  if (a.latency_us > 0) c.between.latency = a.latency_us * 1e-6;
  if (cpu) {
    c.cores = a.cores > 0 ? a.cores : std::max(1u, std::thread::hardware_concurrency());
    c.threads = a.threads > 0 ? a.threads : c.cores;
  }
  return c;
}

Setting setting_of(const PlanArguments& a) {
  Setting s;
  s.model = shape_of(load_model_config(resolve_model(a.model, "MODEL")));
  s.cluster = cluster_of(a);
  WorkloadSpec& w = s.work;
  w.prompts = a.prompts, w.samples_per_prompt = a.samples;
  w.prompt_tokens = a.prompt_tokens, w.response_tokens = a.response_tokens;
  w.longest_response = std::max(a.longest, a.response_tokens), w.length_spread = a.length_spread;
  w.optimizer_steps = a.optimizer_steps, w.micro_batch_tokens = a.micro_tokens, w.most_sequences = a.sequences;
  w.activation_bytes = a.device == "cpu" ? 64 << 20 : 0;
  w.reference = a.reference, w.critic = a.critic, w.recompute = a.recompute && a.device != "cpu";
  w.one_step_behind = a.one_step_behind, w.other_seconds = a.other_seconds;
  MappingSpec& map = s.mapping;
  map.split = a.generation_devices > 0;
  map.generation_devices = map.split ? a.generation_devices : a.devices;
  map.training_devices = map.split ? a.devices - a.generation_devices : a.devices;
  map.generation_tp = a.generation_tp, map.offload = a.offload;
  const auto refuse = [](bool bad, const std::string& what) {
    if (bad) throw ConfigError(what);
  };
  refuse(map.training_devices < 1, "--generation-devices leaves no device for training: name fewer than --devices");
  refuse(map.generation_devices % a.generation_tp != 0,
         fmt::format("--generation-tp {} does not divide the {} generating devices", a.generation_tp,
                     map.generation_devices));
  refuse(
      map.training_devices % (a.tp * a.pp) != 0,
      fmt::format("--tp {} times --pp {} does not divide the {} training devices", a.tp, a.pp, map.training_devices));
  const int data = map.training_devices / (a.tp * a.pp), shard = a.shard > 0 ? a.shard : data;
  refuse(data % shard != 0, fmt::format("--shard {} does not divide the {} data-parallel devices", shard, data));
  map.training = {.pp = a.pp, .dp_replicate = data / shard, .dp_shard = shard, .tp = a.tp};
  return s;
}

Calibration calibration_of(const PlanArguments& a, const ClusterSpec& cluster) {
  std::vector<Measured> all;
  for (const std::string& file : a.calibrate)
    for (Measured& measured : read_measured(file, cluster)) all.push_back(std::move(measured));
  return calibrate(all);
}

std::vector<std::string> inputs_of(const Setting& s, const Calibration& calibration, size_t files) {
  const ClusterSpec& c = s.cluster;
  const WorkloadSpec& w = s.work;
  std::vector<std::string> out;
  out.push_back(fmt::format("model     {:.2f}B parameters, {} layers, hidden {}, {} key heads, vocabulary {}",
                            static_cast<double>(s.model.parameters) / 1e9, s.model.layers, s.model.hidden,
                            s.model.kv_heads, s.model.vocab));
  out.push_back(
      fmt::format("device    {:.0f} GFLOP/s in products, {:.0f} GB/s of memory, {:.0f} GB; {} a machine{}",
                  c.device.flops / 1e9, c.device.memory_per_s / 1e9, c.device.memory / 1e9, c.per_node,
                  c.cores > 0 ? fmt::format("; {} cores and {} threads of all ranks", c.cores, c.threads) : ""));
  out.push_back(fmt::format("links     within a machine {:.0f} GB/s, {:.0f} us; {} {:.0f} GB/s a device, {:.0f} us",
                            c.inside.per_s / 1e9, c.inside.latency * 1e6, c.network, c.between.per_s / 1e9,
                            c.between.latency * 1e6));
  out.push_back(
      fmt::format("step      {:.0f} prompts x {:.0f}, {:.0f} prompt + {:.0f} response tokens (at most {:.0f}, spread "
                  "{:.2f}), {:.0f} optimizer steps, micro-batches of {:.0f}",
                  w.prompts, w.samples_per_prompt, w.prompt_tokens, w.response_tokens, w.longest_response,
                  w.length_spread, w.optimizer_steps, w.micro_batch_tokens));
  const auto points = [&](Phase phase) { return calibration.points[static_cast<size_t>(phase)]; };
  out.push_back(files == 0
                    ? std::string("rates     assumed, not measured here (--calibrate takes measurements)")
                    : fmt::format("rates     scaled to {} files: {} times of generation, {} of training; worst of them "
                                  "off by {:.1f} % and {:.1f} %",
                                  files, points(Phase::kGenerate), points(Phase::kTrain),
                                  100 * calibration.worst_error[static_cast<size_t>(Phase::kGenerate)],
                                  100 * calibration.worst_error[static_cast<size_t>(Phase::kTrain)]));
  return out;
}

ordered_json json_of(int devices, const Setting& s, const Prediction& p, const Efficiency& e) {
  ordered_json line{{"name", "prediction"},           {"devices", devices}, {"network", s.cluster.network},
                    {"mapping", describe(s.mapping)}, {"step_s", p.step},   {"samples_per_s", p.samples_per_s},
                    {"tokens_per_s", p.tokens_per_s}};
  for (size_t i = 0; i < kNumPhases; ++i) line[std::string(to_string(static_cast<Phase>(i))) + "_s"] = p.seconds[i];
  line["efficiency"] = e.step, line["efficiency_generate"] = e.generate, line["efficiency_train"] = e.train;
  return line;
}

void print_inputs(const Setting& s, const Calibration& calibration, size_t files) {
  print_line("A prediction, not a measurement. From:");
  for (const std::string& line : inputs_of(s, calibration, files)) print_line("  " + line);
}

int simulate(const PlanArguments& a) {
  const Setting setting = setting_of(a);
  const Calibration calibration = calibration_of(a, setting.cluster);
  if (!a.json) {
    print_inputs(setting, calibration, a.calibrate.size());
    print_line("  mapping   " + describe(setting.mapping));
    print_line(fmt::format("{:>8}{:>11}{:>11}{:>11}{:>11}{:>10}{:>12}{:>8}{:>10}{:>8}", "devices", "generate",
                           "reference", "train", "reshard", "step", "samples/s", "scale", "generate", "train"));
  }
  std::vector<int> sizes = a.scale.empty() ? std::vector<int>{a.devices} : a.scale;
  const Prediction base = predict(scaled(setting, sizes.front()), calibration);
  for (const int devices : sizes) {
    const Setting s = scaled(setting, devices);
    const Prediction p = predict(s, calibration);
    // On the CPU the same work is spread over more ranks of one machine, so the scale says little: cores are shared.
    const Efficiency e = efficiency(base, p);
    print_line(a.json
                   ? json_of(devices, s, p, e).dump()
                   : fmt::format("{:>8}{:>9.3f} s{:>9.3f} s{:>9.3f} s{:>9.3f} s{:>8.3f} s{:>12.1f}{:>6.1f} %{:>8.1f} %"
                                 "{:>6.1f} %",
                                 devices, p.seconds[0], p.seconds[1], p.seconds[2], p.seconds[3], p.step,
                                 p.samples_per_s, 100 * e.step, 100 * e.generate, 100 * e.train));
  }
  return 0;
}

int plan(const PlanArguments& a) {
  const Setting setting = setting_of(a);
  const Calibration calibration = calibration_of(a, setting.cluster);
  const Plan found = plan_mapping(setting, calibration);
  if (!a.json) print_inputs(setting, calibration, a.calibrate.size());
  if (found.fitting.empty()) {
    print_line(fmt::format("none of {} mappings fits in {:.0f} GB a device; more devices or a smaller model would",
                           found.searched, setting.cluster.device.memory / 1e9));
    return 1;
  }
  const auto shown = std::min<size_t>(static_cast<size_t>(a.top), found.fitting.size());
  for (size_t i = 0; i < shown; ++i) {
    const Candidate& c = found.fitting[i];
    if (a.json) {
      Setting s = setting;
      s.mapping = c.mapping;
      ordered_json line = json_of(a.devices, s, c.prediction, {1, 1, 1});
      line["name"] = "plan", line["rank"] = i + 1, line["runs_today"] = c.runs_today;
      line["generation_gib"] = c.generation_bytes / (1 << 30), line["training_gib"] = c.training_bytes / (1 << 30);
      print_line(line.dump());
      continue;
    }
    print_line(fmt::format("{}. {:.2f} s a step, {:.1f} samples/s: {}{}", i + 1, c.prediction.step,
                           c.prediction.samples_per_s, describe(c.mapping),
                           c.runs_today ? "" : "  (not by this build yet)"));
  }
  if (a.json) return 0;
  print_line(fmt::format("Why the first of {}:", found.searched));
  for (const std::string& reason : found.reasons) print_line("  " + reason);
  return 0;
}

void add_options(CLI::App* command, PlanArguments& a) {
  command->add_option("model", a.model, "a folder with a config.json")->required();
  command->add_option("--devices", a.devices, "GPUs; with --device cpu: ranks")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--per-node", a.per_node, "of a machine")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--device", a.device, "h200, h100, a100, cpu")->capture_default_str();
  command->add_option("--network", a.network, "between machines: ib, roce, mixed")->capture_default_str();
  command->add_option("--link-gb-per-s", a.link_gb_per_s,
                      "of a device to another machine, 1e9 bytes/s; 0: the network's");
  command->add_option("--latency-us", a.latency_us, "of a message to another machine; 0: the network's");
  command->add_option("--cores", a.cores, "cpu: cores of the machine; 0: of this one");
  command->add_option("--threads", a.threads, "cpu: trainer.num_threads, of all ranks together; 0: one a core");
  command->add_option("--prompts", a.prompts, "of a step")->capture_default_str();
  command->add_option("--samples", a.samples, "responses a prompt")->capture_default_str();
  command->add_option("--prompt-tokens", a.prompt_tokens, "mean")->capture_default_str();
  command->add_option("--response-tokens", a.response_tokens, "mean")->capture_default_str();
  command->add_option("--longest", a.longest, "tokens that a response may have at most; 0: the mean");
  command->add_option("--length-spread", a.length_spread,
                      "standard deviation of response lengths over their mean; 0: each batch has one of the longest");
  command->add_flag("--one-step-behind", a.one_step_behind,
                    "split devices generate the next step beside training: samples are one update old");
  command->add_option("--optimizer-steps", a.optimizer_steps, "a step")->capture_default_str();
  command->add_option("--micro-tokens", a.micro_tokens, "of a training pass")->capture_default_str();
  command->add_option("--sequences", a.sequences, "decoded at once by a replica")->capture_default_str();
  command->add_option("--other-seconds", a.other_seconds, "of a step, that no device works in");
  command->add_flag("--reference", a.reference, "with a KL reference");
  command->add_flag("--critic", a.critic, "with a critic of the same size");
  command->add_flag("--recompute,!--no-recompute", a.recompute, "activations are computed again in the backward pass");
  command->add_option("--calibrate", a.calibrate, "metrics.jsonl of runs, or lines of tandem bench, of this device")
      ->allow_extra_args(false);
  command->add_flag("--json", a.json, "JSON lines");
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("simulate", "predict a step's times and scaling for a model, cluster and mapping");
  auto a = std::make_shared<PlanArguments>();
  add_options(command, *a);
  command->add_option("--generation-tp", a->generation_tp, "devices of one generating replica")->capture_default_str();
  command->add_option("--generation-devices", a->generation_devices, "split: for generation alone; 0: colocated");
  command->add_option("--tp", a->tp, "tensor parallelism in training")->capture_default_str();
  command->add_option("--pp", a->pp, "pipeline stages in training")->capture_default_str();
  command->add_option("--shard", a->shard, "devices that share one copy; 0: all data-parallel ones");
  command->add_flag("--offload", a->offload, "masters and moments in the host's memory");
  command
      ->add_option("--scale", a->scale, "numbers of devices, the work a device held; efficiency is against the first")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->callback([&action, a] { action = [a] { return simulate(*a); }; });
}

void add_plan(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("plan", "search the mapping that makes a step shortest among those that fit in memory");
  auto a = std::make_shared<PlanArguments>();
  add_options(command, *a);
  command->add_option("--top", a->top, "mappings shown")->capture_default_str();
  command->callback([&action, a] { action = [a] { return plan(*a); }; });
}

}  // namespace tandem
