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
#include "app/command.h"
#include "app/options.h"
#include "app/watch_run.h"
#include "base/error.h"
#include "base/log.h"
#include "control/elastic.h"
#include "control/pulse.h"
#include "kernels/device_ops.h"
#include "parallel/communicator_nccl.h"
#include "parallel/link_probe.h"

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

std::shared_ptr<Team> make_team(const Rendezvous& place, const RankPlan& plan, int rank, TeamHooks hooks,
                                std::shared_ptr<InFlight> in_flight) {
  auto orders = place.communicator(rank, plan.size(), "orders", kOrderTimeout);
  auto work = place.communicator(rank, plan.size(), "work", plan.timeout);
  Routing routing = plan.actor;
  RankNetwork& network = routing.network;
  network.topology = discover_topology(*work, plan.ranks_per_node);
  if (network.topology.num_nodes() > 1) network.links = measure_links(*work, network.topology);
  if (plan.gpus) work = with_gpus(std::move(work), plan.timeout);
  work->show_in(std::move(in_flight));
  return std::make_shared<Team>(std::move(orders), std::move(work), plan.layout, std::move(hooks), std::move(routing));
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

WorkerSpec role_worker(const std::string& role, int place, uint16_t port, const std::vector<std::string>& words) {
  WorkerSpec spec{.role = role, .device = "cpu"};
  spec.arguments = {"tandem", words.at(0),           "--role", role,
                    "--rank", std::to_string(place), "--port", std::to_string(port)};
  spec.arguments.insert(spec.arguments.end(), words.begin() + 1, words.end());
  spec.environment = {"TANDEM_LOG=error"};
  return spec;
}

}  // namespace

int64_t threads_of_a_rank(const Config& config) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t threads = config.trainer.num_threads > 0 ? config.trainer.num_threads : cores;
  return std::max<int64_t>(1, threads / num_ranks(config));
}

std::vector<std::string> own_roles(const Config& config) {
  std::vector<std::string> roles;
  if (config.trainer.resource_pools.critic == "own") roles.emplace_back("critic");
  if (config.trainer.resource_pools.reference == "own") roles.emplace_back("reference");
  return roles;
}

bool has_others(const Config& config) { return num_ranks(config) > 1 || !own_roles(config).empty(); }

int num_ranks(const Config& config) { return static_cast<int>(config.trainer.n_gpus_per_node); }

Layout run_layout(const Config& config) {
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  const bool megatron = actor.strategy == "megatron";
  Layout layout;
  layout.tp = megatron ? static_cast<int>(actor.megatron.tensor_model_parallel_size) : 1;
  layout.pp = megatron ? static_cast<int>(actor.megatron.pipeline_model_parallel_size) : 1;
  layout.cp = static_cast<int>(megatron ? actor.megatron.context_parallel_size : actor.ulysses_sequence_parallel_size);
  layout.chunks = megatron ? static_cast<int>(actor.megatron.virtual_pipeline_model_parallel_size.value_or(1)) : 1;
  const int data = num_ranks(config) / (layout.tp * layout.pp);  // with those that share sequences
  const int shard = actor.fsdp_config.fsdp_size < 1 ? data : static_cast<int>(actor.fsdp_config.fsdp_size);
  layout.dp_replicate = data / shard, layout.dp_shard = shard / layout.cp;
  return layout;
}

namespace {

Routing actor_routing(const CommunicationConfig& config) {
  const ModelCommunicationConfig& asked = config.actor;
  Routing routing{.model = "actor",
                  .network = {},
                  .asked = {route_named(asked.attention), route_named(asked.mlp), route_named(asked.embedding)},
                  .gradient_switch = {}};
  if (std::ranges::find(config.switched_models, "actor") != config.switched_models.end())
    routing.gradient_switch = SwitchOptions{.share = config.cross_node_share, .back = config.cross_node_share_back};
  return routing;
}

}  // namespace

Config on_ranks(Config config, const std::vector<int>& ranks) {
  if (ranks.empty()) return config;
  const Layout planned = run_layout(config);
  config.trainer.n_gpus_per_node = static_cast<int64_t>(ranks.size());
  const int data = static_cast<int>(ranks.size()) / (planned.tp * planned.pp * planned.cp);
  config.actor_rollout_ref.actor.fsdp_config.fsdp_size = shard_size(data, planned.dp_shard) * planned.cp;
  return config;
}

RankPlan rank_plan(const Config& config, std::vector<int> ranks) {
  const CommunicationConfig& communication = config.trainer.communication;
  return {.layout = run_layout(config),
          .timeout = std::chrono::seconds(config.actor_rollout_ref.nccl_timeout),
          .gpus = !kernels::choose_device(config.trainer.device).is_cpu(),
          .actor = actor_routing(communication),
          .ranks_per_node = static_cast<int>(communication.ranks_per_node),
          .roles = own_roles(config),
          .ranks = std::move(ranks)};
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

RankGroup::RankGroup(const RankPlan& plan, const std::vector<std::string>& words, Runtime& runtime)
    : plan_(plan), runtime_(runtime), place_(Rendezvous::serve("127.0.0.1", 0, plan.timeout)) {
  std::vector<WorkerSpec> workers;
  for (int place = 1; place < plan.size(); ++place)
    workers.push_back(worker_of(plan.number(place), place_.port(), plan, words));
  for (size_t i = 0; i < plan.roles.size(); ++i)
    workers.push_back(role_worker(plan.roles[i], plan.size() + static_cast<int>(i), place_.port(), words));
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
  while (!place_.all_arrived(plan_.everybody())) {
    runtime_.throw_if_lost();
    if (std::chrono::steady_clock::now() > deadline)
      throw CommunicationError(fmt::format(
          "not all {} ranks came within actor_rollout_ref.nccl_timeout={} s; raise it where the machine is slow",
          plan_.everybody(), std::chrono::duration_cast<std::chrono::seconds>(plan_.timeout).count()));
    std::this_thread::sleep_for(10ms);
  }
}

std::shared_ptr<Team> RankGroup::team(int64_t optimizer_steps, TeamHooks hooks, std::shared_ptr<InFlight> in_flight) {
  wait_for_arrivals();
  auto team = make_team(place_, plan_, 0, std::move(hooks), std::move(in_flight));
  broadcast(team->work(), "start of the run", bytes_of(&optimizer_steps, 1), 0);
  return team;
}

std::shared_ptr<RoleLink> RankGroup::link(const std::string& role, int64_t steps) {
  wait_for_arrivals();
  auto link = std::make_shared<RoleLink>(place_.communicator(0, 2, role, kOrderTimeout));
  broadcast(link->group(), "start of the run", bytes_of(&steps, 1), 0);
  return link;
}

namespace {

using Tell = std::function<void(std::string_view)>;

void join_and_work(const RankPlan& plan, const RankAddress& address, const RankWork& work, TeamHooks hooks,
                   const Tell& tell, const std::shared_ptr<InFlight>& in_flight) {
  hooks.on_order = tell;
  if (hooks.hold)
    hooks.hold = [tell, hold = hooks.hold](std::string_view method, const std::function<std::string()>& arguments) {
      tell(fmt::format("held before {}", method));
      hold(method, arguments);
      tell(method);
    };
  if (address.port == 0) return std::this_thread::sleep_for(kShown);
  const Rendezvous meeting = Rendezvous::join("127.0.0.1", address.port, plan.timeout);
  const int place = plan.place(address.rank);
  meeting.arrive(place);
  const auto team = make_team(meeting, plan, place, std::move(hooks), in_flight);
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
  if (!config.trainer.profile.steps.empty()) {
    options.trace = std::make_shared<TraceSlot>();
    options.on_pass = [trace = options.trace](const GeneratorPass& pass) { record_pass(*trace, pass); };
    options.on_tokens = [trace = options.trace](int64_t tokens) {
      if (const auto recorder = trace->get()) recorder->work_done(tokens);
    };
  }
  Engine engine(options, &chat.tokenizer(), std::make_shared<TrajectoryStore>());
  engine.join_team(std::move(team));
  engine.follow();
}

}  // namespace

int follow_ranks(const RankPlan& plan, const RankAddress& address, const RankWork& work, TeamHooks hooks) {
  // The first rank decides how a run ends; without it there is none.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  try {
    const auto pulse = Pulse::from_environment();
    const auto in_flight = std::make_shared<InFlight>();
    if (pulse) pulse->ask([in_flight] { return in_flight->operation(); });
    const Tell tell = [&pulse](std::string_view what) {
      if (pulse) pulse->doing(what);
    };
    join_and_work(plan, address, work, std::move(hooks), tell, in_flight);
  } catch (const std::exception& error) {
    log_error(fmt::format("rank {}: {}", address.rank, error.what()));
    return 2;
  }
  return 0;
}

namespace {

void serve_role(const Config& config, const std::string& role, RoleLink& link, int64_t steps) {
  const auto store = std::make_shared<TrajectoryStore>();
  if (role == "reference") {
    Reference reference(reference_options(config), store);
    return serve_reference(reference, *store, link);
  }
  check(role == "critic", "a role that has no process of its own");
  CriticOptions options = critic_options(config, steps);
  options.trainer.on_nonfinite = [skip = config.trainer.nonfinite_update == "skip"](const NonFiniteUpdate&) {
    return skip;
  };
  Critic critic(options, store);
  serve_critic(critic, *store, link);
}

}  // namespace

int follow_role(const Config& config, const RankAddress& address) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  try {
    const auto pulse = Pulse::from_environment();
    if (pulse) pulse->doing(address.role);
    const Rendezvous meeting =
        Rendezvous::join("127.0.0.1", address.port, std::chrono::seconds(config.actor_rollout_ref.nccl_timeout));
    meeting.arrive(address.rank);
    RoleLink link(meeting.communicator(1, 2, address.role, kOrderTimeout));
    int64_t steps = 0;
    broadcast(link.group(), "start of the run", bytes_of(&steps, 1), 0);
    serve_role(config, address.role, link, steps);
  } catch (const std::exception& error) {
    log_error(fmt::format("{}: {}", address.role, error.what()));
    return 2;
  }
  return 0;
}

TeamHooks held_by(const Breakpoints& breakpoints, int rank) {
  const auto name = [](std::string_view method) { return fmt::format("actor.{}", method); };
  TeamHooks hooks;
  hooks.is_held = [&breakpoints, name](std::string_view method) { return breakpoints.any(name(method)); };
  hooks.hold = [&breakpoints, name, rank](std::string_view method, const std::function<std::string()>& arguments) {
    if (rank > 0) breakpoints.wait(name(method), rank, arguments);
    breakpoints.wait(name(method), {}, {});
  };
  return hooks;
}

namespace {

// A rank that is a thread is told the same words as a process.
uint16_t port_of(const WorkerSpec& spec) {
  const auto word = std::ranges::find(spec.arguments, "--port");
  check(word != spec.arguments.end() && std::next(word) != spec.arguments.end(), "a rank is told its port");
  return static_cast<uint16_t>(std::stoi(*std::next(word)));
}

std::unique_ptr<Runtime> rank_threads(const Config& config) {
  if (!kernels::choose_device(config.trainer.device).is_cpu())
    throw ConfigError("trainer.runtime=threads: a GPU takes a process of its own; leave trainer.runtime out");
  return worker_threads([config](const WorkerSpec& spec, const Tell& tell) {
    set_num_threads(threads_of_a_rank(config));
    const Breakpoints breakpoints(run_folder(config) / kBreakpointFolder);
    const auto work = [&](std::shared_ptr<Team> team, int64_t steps) { follow(config, std::move(team), steps); };
    join_and_work(rank_plan(config), {.rank = spec.rank, .port = port_of(spec)}, work, held_by(breakpoints, spec.rank),
                  tell, std::make_shared<InFlight>());
  });
}

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
  if (!has_others(config)) return std::make_unique<InProcess>();
  if (!own_roles(config).empty() && !kernels::choose_device(config.trainer.device).is_cpu())
    throw ConfigError("trainer.resource_pools: roles of their own compute on the CPU only so far; leave it out");
  const auto timeout = std::chrono::duration<double>(config.trainer.fault.heartbeat_timeout);
  const LocalOptions watch{.heartbeat_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)};
  const RayConfig& ray = config.trainer.ray;
  if (config.trainer.runtime == "threads") return rank_threads(config);
  if (config.trainer.runtime == "ray")
    return ray_actors({.watch = watch, .address = ray_address(ray), .cpus = ray.cpus_per_rank});
  return local_processes(watch);
}

int follow_run(const Config& config, const RankAddress& address) {
  const Breakpoints breakpoints(run_folder(config) / kBreakpointFolder);
  return follow_ranks(
      rank_plan(config, address.among), address,
      [&](std::shared_ptr<Team> team, int64_t optimizer_steps) { follow(config, std::move(team), optimizer_steps); },
      held_by(breakpoints, address.rank));
}

}  // namespace tandem
