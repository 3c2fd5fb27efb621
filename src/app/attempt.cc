#include "app/attempt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "app/options.h"
#include "app/run_journal.h"
#include "base/error.h"
#include "base/log.h"
#include "observe/host_info.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

template <class Worker>
WorkerGroup<Worker> single(std::shared_ptr<Worker> worker, CallObserver observer) {
  return WorkerGroup<Worker>({std::move(worker)}, observer);
}

int64_t steps_of(const AttemptContext& context) {
  return total_steps(context.config, static_cast<int64_t>(context.train_rows));
}

int64_t optimizer_steps(const AttemptContext& context) {
  const int64_t steps = steps_of(context) - context.config.trainer.critic_warmup;
  return std::max<int64_t>(1, steps) * derived_sizes(context.config).optimizer_steps_per_step;
}

template <class Options>
Options with_progress(Options options, Progress& progress, WatchedRun& watched) {
  options.on_tokens = [&progress, &watched](int64_t tokens) {
    progress.advance(tokens);
    watched.work_done(tokens);
  };
  return options;
}

void check_same_vocabulary(const ModelConfig& critic, const ModelConfig& policy) {
  if (critic.vocab_size == policy.vocab_size) return;
  throw ConfigError(
      fmt::format("critic.model.path: a vocabulary of {} ids, but the policy's has {}; the critic reads the "
                  "policy's tokens: use a model with the same tokenizer",
                  critic.vocab_size, policy.vocab_size));
}

void log_device(const Engine& policy) {
  const DecoderWeights& weights = policy.decoder().weights();
  if (!policy.decoder().on_device()) return;
  const kernels::DeviceMemory memory = kernels::device_memory(weights.embed_VE);
  const ParameterCounts counts = count_parameters(weights);
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  log_info(
      fmt::format("{}: {:.1f} of {:.1f} GiB hold all models' weights; policy of {:.1f} M parameters trained and "
                  "{:.1f} M frozen; activations may take {:.1f} GiB",
                  weights.embed_VE.device().str(), gib(memory.allocated), gib(memory.total),
                  static_cast<double>(counts.trained) / 1e6, static_cast<double>(counts.frozen) / 1e6,
                  gib(policy.activation_bytes())));
}

}  // namespace

CallObserver call_observer(PhaseTimer& timer, Progress& progress, const Breakpoints& breakpoints) {
  CallObserver observer{&timer, &progress};
  observer.before = [&breakpoints](std::string_view method, const std::function<std::string()>& arguments) {
    if (!breakpoints.has(method, 0)) return;
    log_warn(
        fmt::format("rank 0 is held before {}; `tandem debug RUN_FOLDER --release {}` lets it go on", method, method));
    breakpoints.wait(method, 0, arguments);
  };
  return observer;
}

Attempt::Attempt(const AttemptContext& context)
    : context_(context),
      actor_(single(std::make_shared<Engine>(guarded_engine_options(), &context_.chat.tokenizer(), context_.store),
                    observer())),
      reference_(needs_reference(context_.config) ? std::make_optional(single(new_reference(), observer()))
                                                  : std::nullopt),
      critic_(needs_critic(context_.config) ? std::make_optional(single(new_critic(), observer())) : std::nullopt),
      program_(make_program(program_options(context_.config, context_.train_rows), roles())) {
  if (critic_) check_same_vocabulary(critic_->worker(0).model(), actor_.worker(0).decoder().config());
  log_device(actor_.worker(0));
}

Attempt::~Attempt() = default;

void Attempt::start_ranks() {
  const RankPlan plan = rank_plan(context_.config, context_.ranks);
  if (plan.everybody() == 1) return;
  ranks_.emplace(plan, context_.words, context_.runtime);
  if (plan.size() > 1) {
    team_ = ranks_->team(optimizer_steps(context_), held_by(context_.breakpoints, 0), context_.in_flight);
    actor_.worker(0).join_team(team_);
    const Engine::Loading& loading = actor_.worker(0).loading();
    const double gigabytes = static_cast<double>(loading.all_bytes) / 1e9;
    if (loading.all_bytes > 0)
      log_info(fmt::format("{:.2f} GB of weights read in {:.2f} s ({:.2f} GB/s), each rank its part", gigabytes,
                           loading.seconds, gigabytes / loading.seconds));
  }
  const auto join = [&](auto role, const char* name) {
    if (role) role->join(ranks_->link(name, steps_of(context_)));
  };
  join(remote_critic_, "critic");
  join(remote_reference_, "reference");
}

void Attempt::abandon() {
  if (team_) team_->abandon();
  if (remote_critic_) remote_critic_->join(nullptr);
  if (remote_reference_) remote_reference_->join(nullptr);
  context_.runtime.end(0ms);
}

std::vector<WorkerStatus> Attempt::workers() {
  const std::string device = actor_.worker(0).decoder().on_device() ? "cuda" : "cpu";
  std::vector<WorkerStatus> all;
  const auto here = [&](const char* role) {
    all.push_back(
        {.role = role, .device = device, .host = host_name(), .pid = getpid(), .state = WorkerState::kRunning});
  };
  here("actor");
  const auto others = context_.runtime.workers();
  all.insert(all.end(), others.begin(), others.end());
  if (reference_ && !remote_reference_) here("reference");
  if (critic_ && !remote_critic_) here("critic");
  here("reward");
  return all;
}

// Adapters leave the model below them as it was: that model is the reference.
std::shared_ptr<Reference> Attempt::new_reference() {
  const ReferenceOptions options = reference_options(context_.config);
  if (context_.config.trainer.resource_pools.reference == "own")
    return remote_reference_ = std::make_shared<RemoteReference>(options, context_.store);
  const Decoder& policy = actor_.worker(0).decoder();
  if (!has_adapters(policy.weights())) return std::make_shared<Reference>(options, context_.store);
  return std::make_shared<Reference>(options, std::make_unique<Decoder>(policy.base()), context_.store);
}

std::shared_ptr<Critic> Attempt::new_critic() {
  if (context_.config.trainer.resource_pools.critic == "own")
    return remote_critic_ =
               std::make_shared<RemoteCritic>(critic_options(context_.config, steps_of(context_)), context_.store);
  return std::make_shared<Critic>(guarded_critic_options(), context_.store);
}

EngineOptions Attempt::guarded_engine_options() {
  EngineOptions options =
      with_progress(engine_options(context_.config, context_.chat.special(), optimizer_steps(context_)),
                    context_.progress, context_.watched);
  if (const auto& trace = context_.watched.trace()) {
    options.trace = trace;
    options.on_pass = [trace](const GeneratorPass& pass) { record_pass(*trace, pass); };
  }
  options.on_finished = [this](const TrajectoryPtr& trajectory) { context_.reward.worker(0).submit(trajectory); };
  options.between_passes = [this] {
    context_.reward.worker(0).throw_failed();
    context_.runtime.throw_if_lost();
  };
  options.drawn = drawn_samples(context_.journal);
  options.trainer.on_nonfinite = [this](const NonFiniteUpdate& update) {
    return context_.guard("actor", update, actor_.worker(0).decoder());
  };
  return options;
}

// On a GPU the critic's activations take the place of the policy's.
CriticOptions Attempt::guarded_critic_options() {
  CriticOptions options =
      with_progress(critic_options(context_.config, steps_of(context_)), context_.progress, context_.watched);
  if (!options.device.is_cpu()) options.trainer.activation_bytes = actor_.worker(0).activation_bytes();
  options.trainer.on_nonfinite = [this](const NonFiniteUpdate& update) {
    return context_.guard("critic", update, critic_->worker(0).decoder());
  };
  return options;
}

Roles Attempt::roles() {
  if (const auto options = token_advantage_options(context_.config))
    token_advantages_ = single(std::make_shared<TokenAdvantages>(
                                   *options, parse_kl_type(context_.config.algorithm.kl_penalty), context_.store),
                               observer());
  const auto if_any = [](auto& group) { return group ? &*group : nullptr; };
  return {actor_, context_.reward, if_any(reference_), if_any(token_advantages_), if_any(critic_)};
}

}  // namespace tandem
