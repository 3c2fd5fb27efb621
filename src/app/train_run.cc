#include "app/train_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

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
Options with_progress(Options options, Progress& progress) {
  options.on_tokens = [&progress](int64_t tokens) { progress.advance(tokens); };
  return options;
}

EngineOptions with_early_rewards(EngineOptions options, WorkerGroup<RewardWorker>& reward) {
  options.on_finished = [&reward](const TrajectoryPtr& trajectory) { reward.worker(0).submit(trajectory); };
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

fs::path data_state_path(const Checkpoint& checkpoint) { return checkpoint.folder / "data.json"; }
fs::path program_state_path(const Checkpoint& checkpoint) { return checkpoint.folder / "program.json"; }

}  // namespace

TrainRun::TrainRun(Config config, const std::vector<std::string>& words)
    : config_(supported(std::move(config))),
      folder_(run_folder(config_)),
      chat_(resolve_model(config_.actor_rollout_ref.model.path)),
      train_data_(load_data(train_data_options(config_), config_, chat_)),
      total_steps_(total_steps(config_, static_cast<int64_t>(train_data_.size()))),
      store_(std::make_shared<TrajectoryStore>()),
      actor_(single(
          std::make_shared<Engine>(
              with_early_rewards(
                  with_progress(engine_options(config_, chat_.special(),
                                               optimizer_steps(config_, static_cast<int64_t>(train_data_.size()))),
                                progress_),
                  reward_),
              &chat_.tokenizer(), store_),
          {&timer_, &progress_})),
      reward_(single(std::make_shared<RewardWorker>(reward_function(config_), store_, chat_.tokenizer(),
                                                    overlong_options(config_)),
                     {&timer_, &progress_})),
      reference_(needs_reference(config_)
                     ? std::make_optional(single(std::make_shared<Reference>(reference_options(config_), store_),
                                                 {&timer_, &progress_}))
                     : std::nullopt),
      critic_(needs_critic(config_) ? std::make_optional(single(
                                          std::make_shared<Critic>(
                                              with_progress(critic_options(config_, total_steps_), progress_), store_),
                                          {&timer_, &progress_}))
                                    : std::nullopt),
      program_(make_program(program_options(config_, train_data_.size()), roles())),
      checkpoints_(expand_user(config_.trainer.default_local_dir),
                   static_cast<int>(config_.trainer.max_actor_ckpt_to_keep.value_or(0))) {
  if (!config_.data.val_files.empty()) validation_data_ = load_data(validation_data_options(config_), config_, chat_);
  if (critic_) check_same_vocabulary(critic_->worker(0).decoder().config(), actor_.worker(0).decoder().config());
  if (num_ranks(config_) > 1) {
    ranks_.emplace(config_, words);
    actor_.worker(0).join_team(ranks_->team(optimizer_steps(config_, static_cast<int64_t>(train_data_.size()))));
  }
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
  const std::optional<Checkpoint> from = checkpoint_to_resume(config_.trainer, checkpoints_);
  StreamState data;
  if (from) {
    actor_.worker(0).load(from->folder);
    if (critic_) critic_->worker(0).load(from->folder);
    const auto saved = nlohmann::json::parse(read_file(data_state_path(*from)));
    data.loader = {saved.at("epoch"), saved.at("next_batch_in_epoch"), saved.at("fingerprint")};
    data.taken = saved.value("taken", uint64_t{0});
    if (fs::exists(program_state_path(*from))) {
      const auto state = nlohmann::json::parse(read_file(program_state_path(*from)));
      program_->restore(state.at("kl_coef"));
    }
    step_ = saved_step_ = from->step;
    log_info(fmt::format("resuming after step {} from {}", step_, from->folder.string()));
  }
  prompts_.emplace(train_data_, loader_options(config_), data);  // refuses data before any file is touched
  const auto kept = from ? std::make_optional(step_) : std::nullopt;
  tracker_ = open_records(config_.trainer, folder_, resolved_yaml(config_), kept);
  samples_.emplace(folder_ / "samples.jsonl", kept);
}

RunSummary TrainRun::run() {
  catch_interrupts();
  resume();
  summary_.folder = folder_;
  progress_.step(step_, total_steps_, "");
  if (validation_data_ && (config_.trainer.val_before_train || config_.trainer.val_only)) {
    const Metrics metrics = validate(step_);
    tracker_->log(step_, metrics);
  }
  while (!config_.trainer.val_only && step_ < total_steps_ && !interrupted()) one_step();
  if (interrupted() && step_ > saved_step_) save([] {});  // it came after the last save
  summary_.last_step = step_;
  summary_.interrupted = interrupted() && step_ < total_steps_;
  return std::move(summary_);
}

void TrainRun::one_step() {
  timer_.reset();
  const auto start = Clock::now();
  StepResult result;
  {
    const auto whole = timer_.scope("step");
    const auto next_prompts = [this](size_t count) {
      const auto waiting = timer_.scope("data_wait");
      return prompts_->take(count);
    };
    result = program_->step(next_prompts, step_);
    ++step_;
    write_samples(step_, result.batch.samples);
    store_->clear();
  }
  finish_step(result, seconds_since(start));
}

// A checkpoint is published after its step is in the log: a run killed between the two makes the step again, while a
// checkpoint without its line could never get it.
void TrainRun::finish_step(const StepResult& result, double seconds) {
  const DerivedSizes sizes = derived_sizes(config_);
  Metrics metrics = batch_metrics(result.batch, sizes.response_length, sizes.prompt_length);
  metrics.merge(result.metrics);
  metrics.merge(actor_.worker(0).take_generation());
  metrics.merge(reward_.worker(0).take_report());
  metrics.merge(throughput_metrics(result.batch.samples, seconds));
  metrics.set("training/global_step", static_cast<double>(step_));
  metrics.set("training/epoch", static_cast<double>(prompts_->state().loader.epoch));
  if (validation_data_ && due(config_.trainer.test_freq)) metrics.merge(validate(step_));
  const auto log = [&] {
    Metrics timing;
    timer_.report(timing);
    add_seconds(summary_.seconds_by_phase, timing);
    metrics.merge(timing);
    tracker_->log(step_, metrics);
  };
  if (due(config_.trainer.save_freq) || interrupted()) {
    const auto saving = timer_.scope("save_checkpoint");
    save(log);
  } else {
    log();
  }
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
  std::optional<SamplesLog> dump;
  if (config_.trainer.validation_data_dir)
    dump.emplace(expand_user(*config_.trainer.validation_data_dir) / (std::to_string(step) + ".jsonl"));
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

void TrainRun::save(const std::function<void()>& before_publishing) {
  const Checkpoint saved = checkpoints_.save(step_, [&](const fs::path& folder) {
    actor_.worker(0).save(folder);
    if (critic_) critic_->worker(0).save(folder);
    const StreamState state = prompts_->state();
    const nlohmann::json data{{"epoch", state.loader.epoch},
                              {"next_batch_in_epoch", state.loader.next_batch_in_epoch},
                              {"fingerprint", state.loader.fingerprint},
                              {"taken", state.taken}};
    write_file_atomic(folder / "data.json", data.dump(2) + "\n");
    write_file_atomic(folder / "program.json", nlohmann::json{{"kl_coef", program_->kl_coefficient()}}.dump(2) + "\n");
    before_publishing();
  });
  saved_step_ = step_;
  // As the user wrote it, like the run's folder.
  summary_.last_checkpoint = expand_user(config_.trainer.default_local_dir) / saved.folder.filename();
}

void TrainRun::write_samples(int64_t step, const RolloutBatch& batch) {
  std::optional<SamplesLog> dump;
  if (config_.trainer.rollout_data_dir)
    dump.emplace(expand_user(*config_.trainer.rollout_data_dir) / (std::to_string(step) + ".jsonl"));
  for (const Sample& sample : batch) {
    const SampleRecord record = sample_record(step, sample, *store_->get(sample.handle), chat_.tokenizer());
    samples_->append(record);
    if (dump) dump->append(record);
  }
}

}  // namespace tandem
