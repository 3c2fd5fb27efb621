#include "app/train_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "app/interrupt.h"
#include "app/options.h"
#include "app/run_folder.h"
#include "app/step_report.h"
#include "app/utilization.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/describe.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

PromptDataset load_data(const DatasetOptions& options, const Config& config, const Chat& chat) {
  const std::string kwargs = config.data.apply_chat_template_kwargs.text;
  return PromptDataset(options, [&](const std::vector<Message>& messages) { return chat.encode(messages, kwargs); });
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

RestartBudget restart_budget(const FaultConfig& fault) {
  const auto window = std::chrono::duration<double>(fault.window_minutes * 60);
  return {fault.max_restarts, std::chrono::duration_cast<RestartBudget::Clock::duration>(window)};
}

// Nothing where every step takes the same.
std::optional<BatchSizeOptions> batch_size_options(const DataConfig& data) {
  const AdaptiveBatchConfig& batch = data.adaptive_batch;
  if (batch.min_size == 0 || batch.min_size == data.train_batch_size) return std::nullopt;
  return BatchSizeOptions{.full = data.train_batch_size,
                          .least = batch.min_size,
                          .step = batch.step > 0 ? batch.step : std::max<int64_t>(1, data.train_batch_size / 4),
                          .low = batch.low_utilization,
                          .high = batch.high_utilization,
                          .patience = batch.patience};
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

}  // namespace

TrainRun::TrainRun(Config config, const std::vector<std::string>& words)
    : config_(supported(std::move(config))),
      group_config_(config_),
      words_({"train"}),
      folder_(run_folder(config_)),
      chat_(resolve_model(config_.actor_rollout_ref.model.path)),
      train_data_(load_data(train_data_options(config_), config_, chat_)),
      total_steps_(total_steps(config_, static_cast<int64_t>(train_data_.size()))),
      watched_(config_.trainer, folder_),
      breakpoints_(folder_ / kBreakpointFolder),
      store_(std::make_shared<TrajectoryStore>()),
      guard_({folder_, resolve_model(config_.actor_rollout_ref.model.path), resolved_yaml(config_),
              config_.trainer.nonfinite_update == "skip"}),
      reward_({std::make_shared<RewardWorker>(reward_function(config_), store_, chat_.tokenizer(),
                                              overlong_options(config_), given_rewards(journal_))},
              call_observer(timer_, progress_, breakpoints_)),
      runtime_(make_runtime(config_)),
      checkpoints_(expand_user(config_.trainer.default_local_dir),
                   static_cast<int>(config_.trainer.max_actor_ckpt_to_keep.value_or(0))),
      saver_(config_.trainer, total_steps_, folder_, checkpoints_, journal_, timer_, has_others(config_)),
      restarts_(restart_budget(config_.trainer.fault)) {
  words_.insert(words_.end(), words.begin(), words.end());
  attempt_.emplace(context());
  saver_.attach(attempt_->stateful());
  if (!config_.data.val_files.empty()) validation_data_ = load_data(validation_data_options(config_), config_, chat_);
  const Decoder& policy = attempt_->actor().worker(0).decoder();
  if (const auto peak = peak_tflops(config_.trainer, policy)) peak_tflops_ = *peak * num_ranks(config_);
  if (has_adapters(policy.weights())) log_info(describe_adapters(policy.weights()));
  attempt_->start_ranks();
  if (has_others(config_)) {
    log_info(fmt::format("{} processes as {}:", rank_plan(config_).everybody(), runtime_->name()));
    for (const std::string& line : worker_table(attempt_->workers())) log_info("  " + line);
  }
}

AttemptContext TrainRun::context() {
  return {group_config_, ranks_,   words_,    chat_,  train_data_.size(), store_,       reward_,   journal_,
          guard_,        watched_, progress_, timer_, *runtime_,          breakpoints_, in_flight_};
}

void TrainRun::take(const Progressed& progressed) {
  prompts_.emplace(train_data_, loader_options(config_), progressed.data);
  rollouts_.assign(progressed.rollouts);
  if (progressed.kl_coefficient) attempt_->program().restore(*progressed.kl_coefficient);
  step_ = progressed.step;
}

void TrainRun::resume() {
  resumed_from_ = checkpoint_to_resume(config_.trainer, checkpoints_);
  if (!resumed_from_ && config_.trainer.resume_mode == "auto") resumed_from_ = saver_.fetch_remote();
  if (resumed_from_) {
    take(read_run_state(resumed_from_->folder, resumed_from_->step, attempt_->stateful()));
    saver_.resumed_at(step_);
    log_info(fmt::format("resuming after step {} from {}", step_, resumed_from_->folder.string()));
  } else {
    take({});
  }
  open_journal();  // after data that does not fit was refused: before any file is touched
  open_records_after(kept_records(resumed_from_.has_value()));
  if (const auto options = batch_size_options(config_.data)) batch_size_.emplace(*options);
  if (batch_size_ && journal_ && journal_->last_prompts() > 0) batch_size_->restore(journal_->last_prompts());
  if (has_others(config_)) worker_file_.emplace(folder_ / "workers.json", *runtime_, [this] { return doing(); });
}

void TrainRun::open_records_after(std::optional<int64_t> kept) {
  tracker_ = open_records(config_.trainer, folder_, resolved_yaml(config_), kept);
  samples_.emplace(folder_ / "samples.jsonl", kept);
  written_ = {step_, step_, ranks_};
}

void TrainRun::open_journal() {
  if (const auto options = journal_options(config_, static_cast<int64_t>(train_data_.size()), folder_))
    journal_.emplace(*options);
}

// The last step whose records stay; nothing where a run begins.
std::optional<int64_t> TrainRun::kept_records(bool from_checkpoint) {
  const auto records = from_checkpoint ? std::make_optional(step_) : std::nullopt;
  if (!journal_) return records;
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
      summary_, step_, total_steps_, [this] { resume(); }, [this] { run_on(); });
  return std::move(summary_);
}

void TrainRun::steps() {
  // From here on a lost rank costs no step that is done.
  if (has_others(config_) && !saver_.in_memory()) saver_.keep_in_memory(progressed());
  progress_.step(step_, total_steps_, "");
  if (validation_data_ && summary_.validations.empty() &&
      (config_.trainer.val_before_train || config_.trainer.val_only)) {
    const Metrics metrics = validate(step_);
    tracker_->log(step_, metrics);
  }
  while (!config_.trainer.val_only && step_ < total_steps_ && !interrupted()) {
    if (misses_ranks()) look_for_ranks();
    one_step();
  }
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
  if (recovering_since_ && step_ >= written_.metrics) {
    recovery_seconds_ += seconds_since(*recovering_since_);
    recovering_since_.reset();
  }
  timer_.reset();
  watched_.begin_step(step_ + 1, timer_);
  if (const TraceRecorder* trace = watched_.recorder()) attempt_->actor().worker(0).begin_trace(*trace);
  const auto start = Clock::now();
  StepResult result;
  {
    const auto whole = timer_.scope("step");
    const auto next_prompts = [this](size_t count) {
      const auto waiting = timer_.scope("data_wait");
      return prompts_->take(count);
    };
    const int64_t prompts = prompts_of_next_step();
    if (journal_) journal_->begin_step(step_ + 1, layout_name(run_layout(group_config_)), prompts);
    guard_.begin_step(step_ + 1);
    attempt_->program().set_prompts_per_step(static_cast<size_t>(prompts));
    result = attempt_->program().step(next_prompts, step_);
    ++step_;
    if (journal_) journal_->commit(attempt_->actor().worker(0).policy_version(), result.batch.samples.size());
    if (step_ > written_.samples) write_samples(step_, result.batch.samples);
    rollouts_.add(step_, result.batch.samples, *store_);
    store_->clear();
  }
  finish_step(result, seconds_since(start));
  if (TraceRecorder* trace = watched_.recorder()) attempt_->actor().worker(0).end_trace(*trace);
  watched_.end_step(timer_);
}

Metrics TrainRun::step_metrics(const StepResult& result, double seconds) {
  const DerivedSizes sizes = derived_sizes(config_);
  Metrics metrics = batch_metrics(result.batch, sizes.response_length, sizes.prompt_length);
  metrics.merge(result.metrics);
  metrics.merge(attempt_->actor().worker(0).take_generation());
  metrics.merge(reward_.worker(0).take_report());
  if (journal_) metrics.merge(journal_->take_metrics());
  metrics.merge(throughput_metrics(result.batch.samples, seconds));
  if (peak_tflops_) metrics.merge(utilization(metrics, timer_, *peak_tflops_));
  metrics.set("training/global_step", static_cast<double>(step_));
  metrics.set("training/epoch", static_cast<double>(prompts_->state().loader.epoch));
  return metrics;
}

void TrainRun::finish_step(const StepResult& result, double seconds) {
  Metrics metrics = step_metrics(result, seconds);
  if (step_ <= written_.metrics) return saver_.after_step(progressed(), interrupted(), [] {});
  if (validation_data_ && due(config_.trainer.test_freq)) metrics.merge(validate(step_));
  metrics.merge(saver_.take_metrics());
  if (batch_size_) observe_rollout(result.batch.samples, metrics);
  if (num_ranks(config_) > 1) metrics.set("perf/ranks", num_ranks(group_config_));
  if (restarts_.total() > 0) metrics.set("perf/recoveries", static_cast<double>(restarts_.total()));
  const double score = metrics.get("critic/score/mean").value_or(0);
  const double length = metrics.get("response_length/mean").value_or(0);
  const auto log = [&] {
    Metrics timing;
    timer_.report(timing);
    if (const double recovery = std::exchange(recovery_seconds_, 0); recovery > 0)
      timing.set("timing_s/recovery", recovery);
    add_seconds(summary_.seconds_by_phase, timing);
    metrics.merge(timing);
    tracker_->log(step_, metrics);
    written_.metrics = step_;
    summary_.rewards.push_back(score);
    progress_.step(step_, total_steps_, fmt::format("reward {:.3f}  length {:.1f}  {:.1f} s", score, length, seconds));
  };
  saver_.after_step(progressed(), interrupted(), log);
}

// A step that is made again takes what it took before, whatever the clock says now.
int64_t TrainRun::prompts_of_next_step() {
  if (!batch_size_) return config_.data.train_batch_size;
  const int64_t before = journal_ ? journal_->prompts_of(step_ + 1) : 0;
  return before > 0 ? before : batch_size_->size();
}

void TrainRun::observe_rollout(const RolloutBatch& batch, Metrics& metrics) {
  const int64_t prompts = batch.empty() ? 0 : batch.back().group + 1;
  metrics.set("rollout/prompts", static_cast<double>(prompts));
  // Samples that were not drawn now say nothing of how quickly they are.
  if (metrics.get("perf/journal_recalled_samples").value_or(0) > 0 || prompts != batch_size_->size()) return;
  double tokens = 0;
  for (const Sample& sample : batch) tokens += sample.response_length;
  const double seconds = timer_.seconds("gen");
  batch_size_->observe(seconds > 0 ? tokens / seconds : 0);
  metrics.set("rollout/utilization", batch_size_->utilization());
  if (batch_size_->size() == prompts) return;
  log_warn(fmt::format("rollout runs at {:.0f} % of its best rate: from step {} on {} of {} prompts a step",
                       100 * batch_size_->utilization(), step_ + 1, batch_size_->size(),
                       config_.data.train_batch_size));
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
    const RolloutBatch drawn = attempt_->actor().call<&Engine::generate_validation>("testing", prompts);
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

std::string TrainRun::doing() const {
  const std::string phases = timer_.open(), exchange = in_flight_->operation();
  return exchange.empty() ? phases : fmt::format("{}, in the exchange '{}'", phases, exchange);
}

Progressed TrainRun::progressed() const {
  return {step_, prompts_->state(), attempt_->program().kl_coefficient(), rollouts_.rollouts()};
}

void TrainRun::write_samples(int64_t step, const RolloutBatch& batch) {
  written_.samples = step;
  std::unique_ptr<SamplesLog> dump = dump_of(config_.trainer.rollout_data_dir, step);
  for (const Sample& sample : batch) {
    const SampleRecord record = sample_record(step, sample, *store_->get(sample.handle), chat_.tokenizer());
    samples_->append(record);
    if (dump) dump->append(record);
  }
}

}  // namespace tandem
