#include "app/train_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/interrupt.h"
#include "app/options.h"
#include "app/run_folder.h"
#include "app/step_report.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/describe.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

PromptDataset load_data(const DatasetOptions& options, const Config& config, const Chat& chat) {
  const std::string kwargs = config.data.apply_chat_template_kwargs.text;
  return PromptDataset(options, [&](const std::vector<Message>& messages) { return chat.encode(messages, kwargs); });
}

template <class Worker>
WorkerGroup<Worker> single(std::shared_ptr<Worker> worker, CallObserver observer) {
  return WorkerGroup<Worker>({std::move(worker)}, observer);
}

int64_t optimizer_steps(const Config& config, int64_t train_rows) {
  const int64_t steps = total_steps(config, train_rows) - config.trainer.critic_warmup;
  return std::max<int64_t>(1, steps) * derived_sizes(config).optimizer_steps_per_step;
}

template <class Options>
Options with_progress(Options options, Progress& progress, WatchedRun& watched) {
  options.on_tokens = [&progress, &watched](int64_t tokens) {
    progress.advance(tokens);
    watched.work_done(tokens);
  };
  return options;
}

void add_seconds(std::vector<Metric>& totals, const Metrics& timing) {
  for (const Metric& metric : timing) {
    const std::string name = metric.name.substr(metric.name.find('/') + 1);
    auto place = std::find_if(totals.begin(), totals.end(), [&](const Metric& m) { return m.name == name; });
    if (place == totals.end()) place = totals.insert(totals.end(), {name, 0});
    place->value += metric.value;
  }
}

std::unique_ptr<RewardFunction> reward_function(const Config& config) {
  if (const auto model = model_reward_options(config)) return std::make_unique<ModelReward>(*model);
  return make_reward(reward_options(config));
}

void check_same_vocabulary(const ModelConfig& critic, const ModelConfig& policy) {
  if (critic.vocab_size == policy.vocab_size) return;
  throw ConfigError(
      fmt::format("critic.model.path: a vocabulary of {} ids, but the policy's has {}; the critic reads the "
                  "policy's tokens: use a model with the same tokenizer",
                  critic.vocab_size, policy.vocab_size));
}

// Null where none is asked for, or none can be written.
std::unique_ptr<SamplesLog> dump_of(const std::optional<std::string>& folder, int64_t step) {
  if (!folder) return nullptr;
  try {
    return std::make_unique<SamplesLog>(expand_user(*folder) / (std::to_string(step) + ".jsonl"));
  } catch (const IoError& error) {
    log_warn(std::string(error.what()) + "; this step's samples are not written there");
    return nullptr;
  }
}

// Adapters leave the model below them as it was: that model is the reference.
Reference make_reference(const Config& config, Engine& actor, std::shared_ptr<TrajectoryStore> store) {
  const ReferenceOptions options = reference_options(config);
  if (!has_adapters(actor.decoder().weights())) return {options, std::move(store)};
  return {options, std::make_unique<Decoder>(actor.decoder().base()), std::move(store)};
}

}  // namespace

TrainRun::TrainRun(Config config, const std::vector<std::string>& words)
    : config_(supported(std::move(config))),
      folder_(run_folder(config_)),
      chat_(resolve_model(config_.actor_rollout_ref.model.path)),
      train_data_(load_data(train_data_options(config_), config_, chat_)),
      total_steps_(total_steps(config_, static_cast<int64_t>(train_data_.size()))),
      watched_(config_.trainer, folder_),
      store_(std::make_shared<TrajectoryStore>()),
      guard_({folder_, resolve_model(config_.actor_rollout_ref.model.path), resolved_yaml(config_),
              config_.trainer.nonfinite_update == "skip"}),
      actor_(single(std::make_shared<Engine>(guarded_engine_options(), &chat_.tokenizer(), store_),
                    {&timer_, &progress_})),
      reward_(single(std::make_shared<RewardWorker>(reward_function(config_), store_, chat_.tokenizer(),
                                                    overlong_options(config_), given_rewards(journal_)),
                     {&timer_, &progress_})),
      reference_(needs_reference(config_) ? std::make_optional(single(std::make_shared<Reference>(make_reference(
                                                                          config_, actor_.worker(0), store_)),
                                                                      {&timer_, &progress_}))
                                          : std::nullopt),
      critic_(needs_critic(config_)
                  ? std::make_optional(
                        single(std::make_shared<Critic>(guarded_critic_options(), store_), {&timer_, &progress_}))
                  : std::nullopt),
      program_(make_program(program_options(config_, train_data_.size()), roles())),
      checkpoints_(expand_user(config_.trainer.default_local_dir),
                   static_cast<int>(config_.trainer.max_actor_ckpt_to_keep.value_or(0))),
      saver_(config_.trainer, total_steps_, folder_, checkpoints_,
             {actor_.worker(0), critic_ ? &critic_->worker(0) : nullptr}, journal_, timer_) {
  if (!config_.data.val_files.empty()) validation_data_ = load_data(validation_data_options(config_), config_, chat_);
  const Decoder& policy = actor_.worker(0).decoder();
  if (has_adapters(policy.weights())) log_info(describe_adapters(policy.weights()));
  if (critic_) check_same_vocabulary(critic_->worker(0).decoder().config(), policy.config());
  if (num_ranks(config_) > 1) {
    std::vector<std::string> command{"train"};
    command.insert(command.end(), words.begin(), words.end());
    ranks_.emplace(rank_plan(config_), command);
    actor_.worker(0).join_team(ranks_->team(optimizer_steps(config_, static_cast<int64_t>(train_data_.size()))));
  }
}

EngineOptions TrainRun::guarded_engine_options() {
  EngineOptions options = with_progress(
      engine_options(config_, chat_.special(), optimizer_steps(config_, static_cast<int64_t>(train_data_.size()))),
      progress_, watched_);
  if (!config_.trainer.profile.steps.empty())
    options.on_pass = [this](const GeneratorPass& pass) { watched_.pass_done(pass); };
  options.on_finished = [this](const TrajectoryPtr& trajectory) { reward_.worker(0).submit(trajectory); };
  options.between_passes = [this] { reward_.worker(0).throw_failed(); };
  options.drawn = drawn_samples(journal_);
  options.trainer.on_nonfinite = [this](const NonFiniteUpdate& update) {
    return guard_("actor", update, actor_.worker(0).decoder());
  };
  return options;
}

CriticOptions TrainRun::guarded_critic_options() {
  CriticOptions options = with_progress(critic_options(config_, total_steps_), progress_, watched_);
  options.trainer.on_nonfinite = [this](const NonFiniteUpdate& update) {
    return guard_("critic", update, critic_->worker(0).decoder());
  };
  return options;
}

Roles TrainRun::roles() {
  if (const auto options = token_advantage_options(config_))
    token_advantages_ =
        single(std::make_shared<TokenAdvantages>(*options, parse_kl_type(config_.algorithm.kl_penalty), store_),
               {&timer_, &progress_});
  const auto if_any = [](auto& group) { return group ? &*group : nullptr; };
  return {actor_, reward_, if_any(reference_), if_any(token_advantages_), if_any(critic_)};
}

void TrainRun::resume() {
  std::optional<Checkpoint> from = checkpoint_to_resume(config_.trainer, checkpoints_);
  if (!from && config_.trainer.resume_mode == "auto") from = saver_.fetch_remote();
  StreamState data;
  if (from) {
    const Progressed saved =
        read_run_state(from->folder, from->step, {actor_.worker(0), critic_ ? &critic_->worker(0) : nullptr});
    data = saved.data;
    rollouts_.assign(saved.rollouts);
    if (saved.kl_coefficient) program_->restore(*saved.kl_coefficient);
    step_ = from->step;
    saver_.resumed_at(step_);
    log_info(fmt::format("resuming after step {} from {}", step_, from->folder.string()));
  }
  prompts_.emplace(train_data_, loader_options(config_), data);  // refuses data before any file is touched
  const auto kept = open_journal(from.has_value());
  tracker_ = open_records(config_.trainer, folder_, resolved_yaml(config_), kept);
  samples_.emplace(folder_ / "samples.jsonl", kept);
}

// Returns the last step whose records stay; nothing where a run begins.
std::optional<int64_t> TrainRun::open_journal(bool from_checkpoint) {
  const auto records = from_checkpoint ? std::make_optional(step_) : std::nullopt;
  const auto options = journal_options(config_, static_cast<int64_t>(train_data_.size()), folder_);
  if (!options) return records;
  journal_.emplace(*options);
  if (config_.trainer.resume_mode == "disable" && !journal_->empty()) journal_->set_aside();
  const size_t samples = journal_->samples_after(step_);
  if (samples == 0) return records;
  log_info(
      fmt::format("the journal holds {} finished samples after step {}, and the steps up to {}: they are not drawn "
                  "again",
                  samples, step_, std::max(step_, journal_->last_committed())));
  return from_checkpoint ? step_ : -1;
}

RunSummary TrainRun::run() {
  watched_.run(
      summary_, step_, total_steps_, [this] { resume(); }, [this] { steps(); });
  return std::move(summary_);
}

void TrainRun::steps() {
  progress_.step(step_, total_steps_, "");
  if (validation_data_ && (config_.trainer.val_before_train || config_.trainer.val_only)) {
    const Metrics metrics = validate(step_);
    tracker_->log(step_, metrics);
  }
  while (!config_.trainer.val_only && step_ < total_steps_ && !interrupted()) one_step();
  saver_.wait();
  if (interrupted() && step_ > saver_.saved_step()) {  // it came after the last save
    saver_.after_step(progressed(), true, [] {});
  }
  saver_.finish();
  // As the user wrote it, like the run's folder.
  if (!saver_.last_folder().empty())
    summary_.last_checkpoint = expand_user(config_.trainer.default_local_dir) / saver_.last_folder().filename();
  if (journal_ && step_ == total_steps_) journal_->remove();
}

void TrainRun::one_step() {
  timer_.reset();
  watched_.begin_step(step_ + 1, timer_);
  const auto start = Clock::now();
  StepResult result;
  {
    const auto whole = timer_.scope("step");
    const auto next_prompts = [this](size_t count) {
      const auto waiting = timer_.scope("data_wait");
      return prompts_->take(count);
    };
    if (journal_) journal_->begin_step(step_ + 1);
    guard_.begin_step(step_ + 1);
    result = program_->step(next_prompts, step_);
    ++step_;
    if (journal_) journal_->commit(actor_.worker(0).policy_version(), result.batch.samples.size());
    write_samples(step_, result.batch.samples);
    rollouts_.add(step_, result.batch.samples, *store_);
    store_->clear();
  }
  finish_step(result, seconds_since(start));
  watched_.end_step(timer_);
}

void TrainRun::finish_step(const StepResult& result, double seconds) {
  const DerivedSizes sizes = derived_sizes(config_);
  Metrics metrics = batch_metrics(result.batch, sizes.response_length, sizes.prompt_length);
  metrics.merge(result.metrics);
  metrics.merge(actor_.worker(0).take_generation());
  metrics.merge(reward_.worker(0).take_report());
  if (journal_) metrics.merge(journal_->take_metrics());
  metrics.merge(throughput_metrics(result.batch.samples, seconds));
  metrics.set("training/global_step", static_cast<double>(step_));
  metrics.set("training/epoch", static_cast<double>(prompts_->state().loader.epoch));
  if (validation_data_ && due(config_.trainer.test_freq)) metrics.merge(validate(step_));
  metrics.merge(saver_.take_metrics());
  const auto log = [&] {
    Metrics timing;
    timer_.report(timing);
    add_seconds(summary_.seconds_by_phase, timing);
    metrics.merge(timing);
    tracker_->log(step_, metrics);
  };
  saver_.after_step(progressed(), interrupted(), log);
  const double score = metrics.get("critic/score/mean").value_or(0);
  summary_.rewards.push_back(score);
  progress_.step(step_, total_steps_,
                 fmt::format("reward {:.3f}  length {:.1f}  {:.1f} s", score,
                             metrics.get("response_length/mean").value_or(0), seconds));
}

bool TrainRun::due(int64_t every) const { return every > 0 && (step_ % every == 0 || step_ == total_steps_); }

Metrics TrainRun::validate(int64_t step) {
  const auto testing = timer_.scope("testing");
  const size_t size = validation_data_->size();
  const size_t at_once = static_cast<size_t>(config_.data.val_batch_size.value_or(static_cast<int64_t>(size)));
  std::vector<ValidationSample> all;
  std::unique_ptr<SamplesLog> dump = dump_of(config_.trainer.validation_data_dir, step);
  int64_t shown = 0;
  for (size_t begin = 0; begin < size; begin += at_once) {
    PromptList prompts;
    for (size_t i = begin; i < std::min(size, begin + at_once); ++i) prompts.push_back((*validation_data_)[i]);
    const RolloutBatch drawn = actor_.call<&Engine::generate_validation>("testing", prompts);
    const ScoredBatch scored = reward_.call<&RewardWorker::score>("testing", drawn);
    for (auto& sample : validation_samples(scored, *store_)) all.push_back(std::move(sample));
    for (const Sample& sample : scored.samples) {
      const SampleRecord record = sample_record(step, sample, *store_->get(sample.handle), chat_.tokenizer());
      if (dump) dump->append(record);
      if (shown++ < config_.trainer.log_val_generations)
        print_line(fmt::format("validation: {} -> {} (truth {}, score {})", record.prompt, record.response,
                               record.ground_truth, record.score));
    }
    store_->clear();
  }
  reward_.worker(0).take_report();  // of validation: no step's
  Metrics metrics = compute_validation_metrics(all);
  summary_.validations.push_back(metrics);
  return metrics;
}

Progressed TrainRun::progressed() const {
  return {step_, prompts_->state(), program_->kl_coefficient(), rollouts_.rollouts()};
}

void TrainRun::write_samples(int64_t step, const RolloutBatch& batch) {
  std::unique_ptr<SamplesLog> dump = dump_of(config_.trainer.rollout_data_dir, step);
  for (const Sample& sample : batch) {
    const SampleRecord record = sample_record(step, sample, *store_->get(sample.handle), chat_.tokenizer());
    samples_->append(record);
    if (dump) dump->append(record);
  }
}

}  // namespace tandem
