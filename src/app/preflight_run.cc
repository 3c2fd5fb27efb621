#include "app/preflight_run.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "app/chat.h"
#include "app/memory_sizes.h"
#include "app/options.h"
#include "app/ranks.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "kernels/device_ops.h"
#include "model/placements.h"
#include "preflight/clock_skew.h"
#include "preflight/disk.h"
#include "preflight/endpoint.h"
#include "preflight/keys.h"
#include "preflight/memory.h"
#include "preflight/network.h"
#include "preflight/ports.h"
#include "preflight/storage.h"
#include "preflight/topology.h"
#include "reward/function.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kLeaderGroup = 4;  // devices that share a leader
constexpr double kEndpointSeconds = 5;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The interface that the environment names; "^lo", "=eth0" and lists are NCCL's own ways of choosing.
std::string chosen_interface() {
  for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"})
    if (const std::string value = environment(name); !value.empty() && value.find_first_of("^=,") == std::string::npos)
      return value;
  return "";
}

Finding check_model_folder(const Config& config) {
  const auto look = [&] {
    const fs::path folder = resolve_model(config.actor_rollout_ref.model.path);
    const ModelConfig model = load_model_config(folder);
    check_model(model, folder, derived_sizes(config).model_length, kernels::choose_device(config.trainer.device));
    check_layout(model, run_layout(config));
    check_tensors(model, WeightFolder(folder));
    const Chat chat(folder);
    return fmt::format("{}: {:.0f}M parameters, {} layers, vocabulary of {}", folder.string(),
                       static_cast<double>(num_parameters(model)) / 1e6, model.num_hidden_layers, model.vocab_size);
  };
  return attempted("model", look, "name a folder in Hugging Face layout in actor_rollout_ref.model.path");
}

Finding check_data_files(const Config& config) {
  const auto look = [&] {
    size_t count = 0;
    for (const auto* files : {&config.data.train_files, &config.data.val_files})
      for (const std::string& file : *files) {
        const fs::path path = expand_user(file);
        if (access(path.c_str(), R_OK) != 0)
          throw IoError(path.string() + " cannot be read: " + std::strerror(errno) +
                        "; correct data.train_files or data.val_files");
        ++count;
      }
    return fmt::format("{} files can be read", count);
  };
  return attempted("data", look, "tandem data prepares data sets");
}

Finding check_reward(const Config& config) {
  const RewardConfig& reward = config.reward;
  if (uses_reward_server(reward)) return check_endpoint(reward.reward_model.endpoint.value_or(""), kEndpointSeconds);
  const auto look = [&]() -> std::string {
    if (uses_reward_model(reward)) {
      const fs::path folder =
          resolve_model(reward.reward_model.model_path.value_or(""), "reward.reward_model.model_path");
      load_model_config(folder);
      return "the reward model " + folder.string();
    }
    if (!reward.custom_reward_function.path) return reward.rule ? "the rule " + *reward.rule : "the rows' own rules";
    RewardOptions options = reward_options(config);
    options.num_workers = 1;
    const PythonReward function(options);
    return fmt::format("{} of {} loads", options.name, options.path.string());
  };
  return attempted("reward", look, "correct reward.* as said");
}

Finding check_places(const Config& config, int64_t nodes) {
  if (kernels::choose_device(config.trainer.device).is_cpu())
    return {"topology", Verdict::kPass, "runs on the CPU", "", {}};
  const auto devices = static_cast<int>(config.trainer.n_gpus_per_node);
  const int tp = static_cast<int>(config.actor_rollout_ref.actor.megatron.tensor_model_parallel_size);
  const int group = devices * nodes == 1 ? 1 : std::min(devices, tp > 1 ? tp : kLeaderGroup);
  return check_topology(gpu_topology(SystemFiles()), devices, group);
}

DiskNeed disk_need(const Config& config, const MemoryQuestion& question) {
  DiskNeed need;
  need.checkpoint_bytes = question.checkpoint_bytes;
  need.most_kept = config.trainer.max_actor_ckpt_to_keep.value_or(0);
  need.saves = question.saves;
  need.folder = expand_user(config.trainer.default_local_dir).string();
  if (config.trainer.journal.enable) need.journal_bytes = static_cast<int64_t>(config.trainer.journal.max_gb * 1e9);
  return need;
}

std::vector<ListeningPort> ports_of(const Config& config) {
  std::vector<ListeningPort> ports;
  const DashboardConfig& dashboard = config.trainer.dashboard;
  if (dashboard.port) ports.push_back({"trainer.dashboard.port", dashboard.host, *dashboard.port});
  if (config.trainer.n_gpus_per_node > 1) ports.push_back({"the ranks' meeting place", "127.0.0.1", 0});
  return ports;
}

NodeFacts node_facts(const Config* config, const Network& network) {
  NodeFacts node;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  node.host = host;
  node.versions = {{"tandem", TANDEM_VERSION}, {"libtorch", TORCH_VERSION}};
  for (auto& entry : system_versions(SystemFiles())) node.versions.push_back(std::move(entry));
  if (config != nullptr) try {
      node.versions.emplace_back("model files", model_fingerprint(resolve_model(config->actor_rollout_ref.model.path)));
    } catch (const Error&) {  // the check of the model says so
      node.versions.emplace_back("model files", "absent");
    }
  for (const Interface& interface : network.interfaces)
    if (interface.up && !interface.loopback && !interface.address.empty()) node.subnets.push_back(subnet(interface));
  return node;
}

// The folder that is checked, whether it is there or not.
void check_folder(const Config& config, int64_t nodes, const MemoryQuestion& question, Findings& findings) {
  const PreflightConfig& keys = config.trainer.preflight;
  const fs::path folder = expand_user(config.trainer.default_local_dir);
  try {
    const FileSystem files = file_system_of(folder, SystemFiles());
    StorageOptions storage;
    storage.folder = folder, storage.nodes = nodes;
    storage.least_bytes_per_s = keys.min_storage_gb_per_s * 1e9;
    storage.checkpoint_bytes = question.checkpoint_bytes, storage.test_bytes = keys.storage_test_mb << 20;
    findings.push_back(check_disk(disk_need(config, question), files));
    findings.push_back(check_storage(storage, files));
    findings.push_back(check_clock(folder, keys.max_clock_skew_s));
  } catch (const IoError& error) {
    findings.push_back({"storage", Verdict::kFail, error.what(), "see the line above", {}});
  }
}

// Sizes cannot be had where the model folder cannot be read.
template <class Check>
void or_fail(Findings& findings, const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    findings.push_back({"memory", Verdict::kFail, error.what(), "see the model's check", {}});
  }
}

}  // namespace

PreflightReport run_preflight(const ConfigWords& words, const PreflightOptions& options) {
  PreflightReport report;
  std::optional<LoadedConfig> loaded;
  std::string problem;
  try {
    loaded = load_config_with_notes(words.files, words.overrides);
    supported(loaded->config);
  } catch (const Error& error) {
    problem = error.what(), loaded.reset();
  }
  Findings& findings = report.findings;
  findings.push_back(check_keys(loaded, problem));
  const Network network = read_network(SystemFiles());
  report.node = node_facts(loaded ? &loaded->config : nullptr, network);
  if (loaded) {
    const Config& config = loaded->config;
    const int64_t nodes = options.nodes > 0 ? options.nodes : config.trainer.nnodes;
    findings.push_back(check_model_folder(config));
    findings.push_back(check_data_files(config));
    or_fail(findings, [&] {
      const MemoryQuestion question = memory_question(config);
      findings.push_back(check_memory(question.estimate(), question.device, machine_memory(SystemFiles())));
      check_folder(config, nodes, question, findings);
    });
    findings.push_back(check_places(config, nodes));
    findings.push_back(check_network(network, nodes, chosen_interface()));
    findings.push_back(check_ports(ports_of(config)));
    findings.push_back(check_reward(config));
  }
  std::vector<NodeFacts> others;
  for (const fs::path& file : options.against) others.push_back(parse_node(read_file(file), file.string()));
  findings.push_back(check_versions(report.node, others));
  return report;
}

void preflight_of_run(const Config& config) {
  if (!config.trainer.preflight.enable) return;
  const MemoryQuestion question = memory_question(config);
  Findings findings{check_memory(question.estimate(), question.device, machine_memory(SystemFiles()))};
  if (!config.trainer.val_only)
    findings.push_back(check_disk(disk_need(config, question),
                                  file_system_of(expand_user(config.trainer.default_local_dir), SystemFiles())));
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kFail)
      throw ConfigError(fmt::format("{}: {} ({}); trainer.preflight.enable=false starts anyway", finding.check,
                                    finding.why, finding.remedy));
    if (finding.verdict == Verdict::kWarn)
      log_warn(fmt::format("{}: {}; {}", finding.check, finding.why, finding.remedy));
  }
}

}  // namespace tandem
