// tandem bench: times the engine, its kernels and what ranks exchange, on random weights of a config.json's shape.
#include <fmt/format.h>

#include <thread>

#include "app/bench_engine.h"
#include "app/bench_kernels.h"
#include "app/bench_load.h"
#include "app/bench_ranks.h"
#include "app/bench_reshard.h"
#include "app/command.h"
#include "base/error.h"
#include "kernels/device_ops.h"

namespace tandem {
namespace {

// What another rank is started with, to have the same arguments.
std::vector<std::string> words_of(const BenchArguments& a) {
  std::vector<std::string> words{"bench", a.what, a.model, "--device", a.device};
  const auto add = [&](const char* name, int64_t value) { words.insert(words.end(), {name, std::to_string(value)}); };
  add("--prompts", a.prompts), add("--samples", a.samples), add("--prompt-tokens", a.prompt_tokens);
  add("--new-tokens", a.new_tokens), add("--repeats", a.repeats), add("--micro-tokens", a.micro_tokens);
  add("--kv-cache-mb", a.kv_cache_mb), add("--batched-tokens", a.batched_tokens);
  add("--activation-mb", a.activation_mb), add("--threads", a.threads), add("--ranks", a.ranks);
  add("--replicas", a.replicas), add("--timeout", a.timeout);
  if (a.ragged) words.emplace_back("--ragged");
  return words;
}

// Of the words that all ranks carry out alike, without an engine.
bool on_all_ranks(const std::string& what) {
  return what == "reshard" || what == "ranks" || what == "dead-rank" || what == "hanging-rank";
}

bool run_alike(const BenchArguments& a, Team& team) {
  const at::Device device(a.device);
  Communicator& world = team.work();
  if (a.what == "dead-rank" || a.what == "hanging-rank") return check_failure(world, device, a.what == "hanging-rank");
  if (a.what == "reshard") measure_switch(world, a.model, device, a.repeats);
  return a.what == "reshard" || check_ranks(world, device);
}

int run_on_ranks(const BenchArguments& a) {
  if (a.what == "compare" || a.what == "kernels") throw ConfigError(a.what + " runs on one rank: leave --ranks out");
  if (a.replicas < 1 || a.ranks % a.replicas != 0) throw ConfigError("--replicas must divide --ranks");
  const RankPlan plan{a.layout(), std::chrono::seconds(a.timeout), a.device != "cpu"};
  if (plan.gpus) {
    kernels::choose_device(a.device);
    if (a.leads() && a.ranks > kernels::num_gpus())
      throw ConfigError(fmt::format("--ranks {}: this machine shows {} GPUs", a.ranks, kernels::num_gpus()));
  }
  if (!a.leads())
    return follow_ranks(plan, a.address, [&](std::shared_ptr<Team> team, int64_t) {
      if (on_all_ranks(a.what)) return static_cast<void>(run_alike(a, *team));
      follow_bench(a, std::move(team));
    });
  const auto runtime = local_processes({});
  RankGroup processes(plan, words_of(a), *runtime);
  if (on_all_ranks(a.what)) return run_alike(a, *processes.team()) ? 0 : 1;
  bench_engine(a, processes.team());
  return 0;
}

int run(BenchArguments a) {
  if (a.what == "reshard" && a.device == "cpu") return bench_reshard(a.model, a.ranks == 0 ? 8 : a.ranks);
  a.ranks = std::max(1, a.ranks);
  if (a.what == "load") return bench_load(a.model, a.ranks, static_cast<int>(a.repeats));
  if (a.weak) a.prompts *= a.ranks, a.weak = false;
  const int64_t cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  set_num_threads(a.ranks == 1 ? a.threads : std::max<int64_t>(1, (a.threads > 0 ? a.threads : cores) / a.ranks));
  if (a.ranks > 1) return run_on_ranks(a);
  if (on_all_ranks(a.what)) throw ConfigError(a.what + " wants several ranks: --ranks N");
  if (a.what == "kernels") {
    bench_kernels(a);
  } else {
    bench_engine(a);
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("bench", "time the engine on random weights; prints JSON");
  auto a = std::make_shared<BenchArguments>();
  command->add_option("what", a->what)
      ->required()
      ->check(CLI::IsMember({"rollout", "train", "step", "save", "load", "kernels", "compare", "reshard", "ranks",
                             "dead-rank", "hanging-rank"}));
  command->add_option("model", a->model, "a folder with a config.json")->required();
  command->add_option("--device", a->device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--prompts", a->prompts)->capture_default_str();
  command->add_option("--samples", a->samples, "responses a prompt")->capture_default_str();
  command->add_option("--prompt-tokens", a->prompt_tokens)->capture_default_str();
  command->add_option("--new-tokens", a->new_tokens, "tokens of each response")->capture_default_str();
  command->add_option("--repeats", a->repeats)->capture_default_str();
  command->add_option("--micro-tokens", a->micro_tokens, "tokens of a training micro-batch")->capture_default_str();
  command->add_option("--kv-cache-mb", a->kv_cache_mb)->capture_default_str();
  command->add_option("--batched-tokens", a->batched_tokens, "tokens of a rollout pass")->capture_default_str();
  command->add_option("--activation-mb", a->activation_mb)->capture_default_str();
  command->add_option("--ranks", a->ranks, "processes, each with a GPU of its own; reshard on the CPU: of the layouts");
  command->add_option("--replicas", a->replicas, "groups of ranks that have whole weights each")->capture_default_str();
  command->add_flag("--weak", a->weak, "--prompts counts for each rank");
  command->add_option("--timeout", a->timeout, "seconds that a rank waits for another")->capture_default_str();
  command->add_option("--rank", a->address.rank)->group("");
  command->add_option("--port", a->address.port)->group("");
  command->add_option("--threads", a->threads, "0: one a core")->capture_default_str();
  command->add_flag("--ragged", a->ragged, "prompts and responses of many lengths; --new-tokens is the most");
  command->add_flag("--verify", a->verify, "compare rollout's log-probs with the training forward's, bit for bit");
  command->callback([&action, a] { action = [a] { return run(*a); }; });
}

}  // namespace tandem
