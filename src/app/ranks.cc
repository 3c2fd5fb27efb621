#include "app/ranks.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <string_view>
#include <thread>

#include "app/chat.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "kernels/device_ops.h"
#include "parallel/communicator_nccl.h"

extern char** environ;

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr auto kGoodbye = 5s;  // for a rank to end by itself
// Between two verbs the leader may score, validate or save for hours; a leader that is gone is noticed at once.
constexpr Timeout kOrderTimeout = std::chrono::hours(24 * 30);

std::unique_ptr<Communicator> with_gpus(std::unique_ptr<Communicator> host, Timeout timeout) {
  const auto make = reinterpret_cast<MakeDeviceCommunicator>(kernels::device_function(kMakeDeviceCommunicator));
  return std::unique_ptr<Communicator>(make(host.release(), timeout.count()));
}

std::shared_ptr<Team> make_team(const Rendezvous& place, const RankPlan& plan, int rank) {
  auto orders = place.communicator(rank, plan.size(), "orders", kOrderTimeout);
  auto work = place.communicator(rank, plan.size(), "work", plan.timeout);
  if (plan.gpus) work = with_gpus(std::move(work), plan.timeout);
  return std::make_shared<Team>(std::move(orders), std::move(work), plan.layout);
}

// The name of the GPU that is `rank`'s among those that this process may use.
std::string gpu_of(int rank) {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  if (shown == nullptr) return std::to_string(rank);
  std::istringstream names(shown);
  std::string name;
  for (int i = 0; i <= rank; ++i) std::getline(names, name, ',');
  return name;
}

pid_t start_rank(int rank, uint16_t port, const RankPlan& plan, const std::vector<std::string>& words) {
  std::vector<std::string> all{"tandem", words.at(0), "--rank", std::to_string(rank), "--port", std::to_string(port)};
  all.insert(all.end(), words.begin() + 1, words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // What the configuration has to say the first rank says.
  std::vector<std::string> own{"TANDEM_LOG=error"};
  if (plan.gpus) own.push_back("CUDA_VISIBLE_DEVICES=" + gpu_of(rank));
  std::vector<char*> environment;
  for (std::string& entry : own) environment.push_back(entry.data());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('=') + 1);
    if (std::ranges::none_of(own, [&](const std::string& set) { return set.starts_with(name); }))
      environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment.data());
  if (error != 0) throw IoError(std::string("cannot start another process: ") + std::strerror(error));
  return pid;
}

bool ended(pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; }

}  // namespace

int num_ranks(const Config& config) { return static_cast<int>(config.trainer.n_gpus_per_node); }

Layout run_layout(const Config& config) {
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  if (actor.megatron.pipeline_model_parallel_size > 1) return {.pp = num_ranks(config)};
  const int tp = actor.strategy == "megatron" ? static_cast<int>(actor.megatron.tensor_model_parallel_size) : 1;
  const int data = num_ranks(config) / tp;
  const int shard = actor.fsdp_config.fsdp_size < 1 ? data : static_cast<int>(actor.fsdp_config.fsdp_size);
  return {.dp_replicate = data / shard, .dp_shard = shard, .tp = tp};
}

RankPlan rank_plan(const Config& config) {
  return {run_layout(config), std::chrono::seconds(config.actor_rollout_ref.nccl_timeout),
          !kernels::choose_device(config.trainer.device).is_cpu()};
}

RankProcesses::RankProcesses(const RankPlan& plan, const std::vector<std::string>& words)
    : plan_(plan), place_(Rendezvous::serve("127.0.0.1", 0, plan.timeout)) {
  for (int rank = 1; rank < plan.size(); ++rank) children_.push_back(start_rank(rank, place_.port(), plan, words));
}

RankProcesses::~RankProcesses() {
  const auto patience = std::uncaught_exceptions() > 0 ? 0s : kGoodbye;  // after a failure none will end by itself
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const pid_t child : children_) {
    bool gone = ended(child);
    while (!gone && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(20ms);
      gone = ended(child);
    }
    if (gone) continue;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

void RankProcesses::wait_for_arrivals() {
  const auto deadline = std::chrono::steady_clock::now() + plan_.timeout;
  while (!place_.all_arrived(plan_.size())) {
    for (size_t i = 0; i < children_.size(); ++i)
      if (ended(children_[i]))
        throw CommunicationError(fmt::format("rank {} ended before the run began; its own error says why", i + 1));
    if (std::chrono::steady_clock::now() > deadline)
      throw CommunicationError(fmt::format(
          "not all {} ranks came within actor_rollout_ref.nccl_timeout={} s; raise it where the machine is slow",
          plan_.size(), std::chrono::duration_cast<std::chrono::seconds>(plan_.timeout).count()));
    std::this_thread::sleep_for(10ms);
  }
}

std::shared_ptr<Team> RankProcesses::team(int64_t optimizer_steps) {
  wait_for_arrivals();
  auto team = make_team(place_, plan_, 0);
  broadcast(team->work(), "start of the run", bytes_of(&optimizer_steps, 1), 0);
  return team;
}

namespace {

void join_and_work(const RankPlan& plan, const RankAddress& address, const RankWork& work) {
  const Rendezvous place = Rendezvous::join("127.0.0.1", address.port, plan.timeout);
  place.arrive(address.rank);
  const auto team = make_team(place, plan, address.rank);
  int64_t optimizer_steps = 0;
  broadcast(team->work(), "start of the run", bytes_of(&optimizer_steps, 1), 0);
  work(team, optimizer_steps);
}

void follow(const Config& config, std::shared_ptr<Team> team, int64_t optimizer_steps) {
  const Chat chat(resolve_model(config.actor_rollout_ref.model.path));
  EngineOptions options = engine_options(config, chat.special(), optimizer_steps);
  // The first rank writes down what was not finite, and decides alike.
  options.trainer.on_nonfinite = [skip = config.trainer.nonfinite_update == "skip"](const NonFiniteUpdate&) {
    return skip;
  };
  Engine engine(std::move(options), &chat.tokenizer(), std::make_shared<TrajectoryStore>());
  engine.join_team(std::move(team));
  engine.follow();
}

}  // namespace

int follow_ranks(const RankPlan& plan, const RankAddress& address, const RankWork& work) {
  // The first rank decides how a run ends; without it there is none.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  try {
    join_and_work(plan, address, work);
  } catch (const std::exception& error) {
    log_error(fmt::format("rank {}: {}", address.rank, error.what()));
    return 2;
  }
  return 0;
}

int follow_run(const Config& config, const RankAddress& address) {
  return follow_ranks(rank_plan(config), address, [&](std::shared_ptr<Team> team, int64_t optimizer_steps) {
    follow(config, std::move(team), optimizer_steps);
  });
}

}  // namespace tandem
