#include "app/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <thread>

#include "app/chat.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "control/elastic.h"
#include "control/pulse.h"
#include "kernels/device_ops.h"
#include "parallel/communicator_nccl.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr auto kGoodbye = 5s;  // for a rank to end by itself
constexpr auto kShown = 1s;    // that a process which only shows it can run does so
constexpr auto kTryOut = 20s;  // for such processes to start and end
// Between two verbs the leader may score, validate or save for hours; a leader that is gone is noticed at once.
constexpr Timeout kOrderTimeout = std::chrono::hours(24 * 30);

std::unique_ptr<Communicator> with_gpus(std::unique_ptr<Communicator> host, Timeout timeout) {
  const auto make = reinterpret_cast<MakeDeviceCommunicator>(kernels::device_function(kMakeDeviceCommunicator));
  return std::unique_ptr<Communicator>(make(host.release(), timeout.count()));
}

std::shared_ptr<Team> make_team(const Rendezvous& place, const RankPlan& plan, int rank,
                                std::function<void(std::string_view)> on_order = {}) {
  auto orders = place.communicator(rank, plan.size(), "orders", kOrderTimeout);
  auto work = place.communicator(rank, plan.size(), "work", plan.timeout);
  if (plan.gpus) work = with_gpus(std::move(work), plan.timeout);
  return std::make_shared<Team>(std::move(orders), std::move(work), plan.layout, std::move(on_order));
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

WorkerSpec worker_of(int rank, uint16_t port, const RankPlan& plan, const std::vector<std::string>& words) {
  WorkerSpec spec{.role = "actor", .device = plan.gpus ? "cuda:" + gpu_of(rank) : "cpu", .rank = rank};
  spec.arguments = {"tandem", words.at(0), "--rank", std::to_string(rank), "--port", std::to_string(port)};
  if (!plan.ranks.empty())
    spec.arguments.insert(spec.arguments.end(), {"--among", fmt::format("{}", fmt::join(plan.ranks, ","))});
  spec.arguments.insert(spec.arguments.end(), words.begin() + 1, words.end());
  spec.environment = {"TANDEM_LOG=error"};  // what the configuration has to say the first rank says
  if (plan.gpus) spec.environment.push_back("CUDA_VISIBLE_DEVICES=" + gpu_of(rank));
  return spec;
}

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

Config on_ranks(Config config, const std::vector<int>& ranks) {
  if (ranks.empty()) return config;
  const Layout planned = run_layout(config);
  config.trainer.n_gpus_per_node = static_cast<int64_t>(ranks.size());
  const int data = static_cast<int>(ranks.size()) / planned.tp;
  config.actor_rollout_ref.actor.fsdp_config.fsdp_size = shard_size(data, planned.dp_shard);
  return config;
}

RankPlan rank_plan(const Config& config, std::vector<int> ranks) {
  return {run_layout(config), std::chrono::seconds(config.actor_rollout_ref.nccl_timeout),
          !kernels::choose_device(config.trainer.device).is_cpu(), std::move(ranks)};
}

int RankPlan::place(int number) const {
  if (ranks.empty()) return number;
  const auto found = std::ranges::find(ranks, number);
  check(found != ranks.end(), "a rank that is not among those that are there");
  return static_cast<int>(found - ranks.begin());
}

bool could_start(const RankPlan& plan, const std::vector<int>& ranks, const std::vector<std::string>& words,
                 Runtime& runtime) {
  std::vector<WorkerSpec> workers;
  for (const int rank : ranks) workers.push_back(worker_of(rank, 0, plan, words));
  return runtime.try_out(workers, kTryOut);
}

namespace {

std::string ray_address(const RayConfig& ray) {
  if (ray.autostart) return {};
  if (ray.address) return *ray.address;
  const char* given = std::getenv("RAY_ADDRESS");
  if (given == nullptr || *given == 0)
    throw ConfigError(
        "trainer.runtime=ray needs to know which Ray: set trainer.ray.address=HOST:PORT, or "
        "trainer.ray.autostart=true");
  return given;
}

}  // namespace

std::unique_ptr<Runtime> make_runtime(const Config& config) {
  if (num_ranks(config) == 1) return std::make_unique<InProcess>();
  const auto timeout = std::chrono::duration<double>(config.trainer.fault.heartbeat_timeout);
  const LocalOptions watch{.heartbeat_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)};
  const RayConfig& ray = config.trainer.ray;
  if (config.trainer.runtime == "ray")
    return ray_actors({.watch = watch, .address = ray_address(ray), .cpus = ray.cpus_per_rank});
  return local_processes(watch);
}

RankGroup::RankGroup(const RankPlan& plan, const std::vector<std::string>& words, Runtime& runtime)
    : plan_(plan), runtime_(runtime), place_(Rendezvous::serve("127.0.0.1", 0, plan.timeout)) {
  std::vector<WorkerSpec> workers;
  for (int place = 1; place < plan.size(); ++place)
    workers.push_back(worker_of(plan.number(place), place_.port(), plan, words));
  try {
    runtime_.start(workers);
  } catch (const IoError& error) {
    throw WorkerLost(error.what());
  }
}

RankGroup::~RankGroup() {
  runtime_.end(std::uncaught_exceptions() > 0 ? 0s : kGoodbye);  // after a failure none will end by itself
}

void RankGroup::wait_for_arrivals() {
  const auto deadline = std::chrono::steady_clock::now() + plan_.timeout;
  while (!place_.all_arrived(plan_.size())) {
    runtime_.throw_if_lost();
    if (std::chrono::steady_clock::now() > deadline)
      throw CommunicationError(fmt::format(
          "not all {} ranks came within actor_rollout_ref.nccl_timeout={} s; raise it where the machine is slow",
          plan_.size(), std::chrono::duration_cast<std::chrono::seconds>(plan_.timeout).count()));
    std::this_thread::sleep_for(10ms);
  }
}

std::shared_ptr<Team> RankGroup::team(int64_t optimizer_steps) {
  wait_for_arrivals();
  auto team = make_team(place_, plan_, 0);
  broadcast(team->work(), "start of the run", bytes_of(&optimizer_steps, 1), 0);
  return team;
}

namespace {

void join_and_work(const RankPlan& plan, const RankAddress& address, const RankWork& work) {
  const auto pulse = Pulse::from_environment();
  const auto tell = [&pulse](std::string_view what) {
    if (pulse) pulse->doing(what);
  };
  if (address.port == 0) return std::this_thread::sleep_for(kShown);
  const Rendezvous meeting = Rendezvous::join("127.0.0.1", address.port, plan.timeout);
  const int place = plan.place(address.rank);
  meeting.arrive(place);
  const auto team = make_team(meeting, plan, place, tell);
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
  return follow_ranks(
      rank_plan(config, address.among), address,
      [&](std::shared_ptr<Team> team, int64_t optimizer_steps) { follow(config, std::move(team), optimizer_steps); });
}

}  // namespace tandem
