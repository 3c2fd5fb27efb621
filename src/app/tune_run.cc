#include "app/tune_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/interrupt.h"
#include "app/options.h"
#include "app/run_folder.h"
#include "app/tune_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/describe.h"
#include "data/loader.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

TuningSet load_set(const TuningConfig& config, TuningTask task, const Chat& chat, bool training) {
  const std::string kwargs = config.data.apply_chat_template_kwargs.text;
  return TuningSet(
      tuning_set_options(config, task == TuningTask::kPreference, training),
      [&](const std::vector<Message>& messages, size_t first) { return chat.encode_masked(messages, kwargs, first); });
}

std::optional<TuningSet> load_validation(const TuningConfig& config, TuningTask task, const Chat& chat) {
  if (config.data.val_files.empty()) return std::nullopt;
  return load_set(config, task, chat, false);
}

// The model need not be made for data.max_length where the data stays below it.
TunerOptions options_of(const TuningConfig& config, const TuningSet& train, const std::optional<TuningSet>& validation,
                        int64_t total_steps) {
  TunerOptions options = tuner_options(config, train.samples_per_row(), total_steps);
  options.max_length = static_cast<int64_t>(std::max(train.longest(), validation ? validation->longest() : 0));
  return options;
}

std::unique_ptr<Tuner> make_tuner(TuningTask task, TunerOptions options, Progress& progress, WatchedRun& watched) {
  options.on_tokens = [&progress, &watched](int64_t tokens) {
    progress.advance(tokens);
    watched.work_done(tokens);
  };
  return task == TuningTask::kPreference ? make_preference_tuner(options) : make_supervised_tuner(options);
}

int64_t steps_of(const TuningConfig& config, size_t rows) {
  const int64_t steps = total_steps(config, static_cast<int64_t>(rows));
  if (steps == 0)
    throw DataError(fmt::format("the data set has {} rows, fewer than data.train_batch_size={}; lower it or add data",
                                rows, config.data.train_batch_size));
  return steps;
}

uint64_t order_seed(const TuningConfig& config) {
  return static_cast<uint64_t>(config.data.seed.value_or(config.trainer.seed));
}

// What the number of a step counts in.
std::string describe_order(const TuningConfig& config, const TuningSet& train) {
  const nlohmann::json order{{"fingerprint", train.fingerprint()},
                             {"batch_size", config.data.train_batch_size},
                             {"shuffle", config.data.shuffle},
                             {"seed", order_seed(config)}};
  return order.dump(2) + "\n";
}

TuningConfig checked(TuningConfig config, TuningTask task) {
  if (task == TuningTask::kPreference && config.model.uses_lora())
    throw ConfigError(
        "model.lora_rank: a reward model trains all its weights; leave lora_rank and lora_adapter_path out");
  return config;
}

fs::path data_state_path(const fs::path& folder) { return folder / "data.json"; }

}  // namespace

TuneRun::TuneRun(TuningConfig config, TuningTask task)
    : config_(checked(std::move(config), task)),
      folder_(run_folder_of(config_.trainer.default_local_dir)),
      chat_(resolve_model(config_.model.path)),
      train_(load_set(config_, task, chat_, true)),
      validation_(load_validation(config_, task, chat_)),
      total_steps_(steps_of(config_, train_.size())),
      watched_(config_.trainer, folder_),
      order_(describe_order(config_, train_)),
      tuner_(make_tuner(task, options_of(config_, train_, validation_, total_steps_), progress_, watched_)),
      checkpoints_(expand_user(config_.trainer.default_local_dir),
                   static_cast<int>(config_.trainer.max_ckpt_to_keep.value_or(0))),
      copies_(config_.checkpoint.async_save),
      writer_(checkpoints_, config_.checkpoint.max_write_mb_per_s * 1e6) {
  const DecoderWeights& weights = tuner_->decoder().weights();
  if (has_adapters(weights)) log_info(describe_adapters(weights));
}

// A step's rows are a function of its number and of what describe_order() names.
TuningBatch TuneRun::batch_of(int64_t step) const {
  const auto size = static_cast<size_t>(config_.data.train_batch_size);
  const size_t an_epoch = train_.size() / size, epoch = static_cast<size_t>(step) / an_epoch;
  const auto order = epoch_order(train_.size(), order_seed(config_), epoch, config_.data.shuffle);
  const auto first = order.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(step) % an_epoch * size);
  return train_.take({first, first + static_cast<std::ptrdiff_t>(size)});
}

void TuneRun::resume() {
  const std::optional<Checkpoint> from = checkpoint_to_resume(config_.trainer, checkpoints_);
  if (from) {
    if (read_file(data_state_path(from->folder)) != order_)
      throw DataError(from->folder.string() +
                      " was saved with other data, batch size, seed, shuffling or kind of training; resume with those "
                      "of the saved run, or set trainer.resume_mode=disable");
    tuner_->load(from->folder);
    step_ = saved_step_ = from->step;
    log_info(fmt::format("resuming after step {} from {}", step_, from->folder.string()));
  }
  const auto kept = from ? std::make_optional(step_) : std::nullopt;
  tracker_ = open_records(config_.trainer, folder_, resolved_yaml(config_), kept);
}

TuneSummary TuneRun::run() {
  watched_.run(
      summary_, step_, total_steps_, [this] { resume(); }, [this] { steps(); });
  return std::move(summary_);
}

void TuneRun::steps() {
  progress_.step(step_, total_steps_, "");
  while (step_ < total_steps_ && !interrupted()) one_step();
  writer_.wait();
  take_reports();
  if (interrupted() && step_ > saved_step_) save([] {});  // it came after the last save
  writer_.wait();
  take_reports();
  if (!save_error_.empty())
    throw IoError("the last checkpoint could not be saved: " + save_error_ +
                  "; make room or choose another trainer.default_local_dir, and start the same command again");
}

bool TuneRun::due(int64_t every) const { return step_ == total_steps_ || (every > 0 && step_ % every == 0); }

// A checkpoint is published after its step is in the log: see RunSaver::after_step.
void TuneRun::one_step() {
  timer_.reset();
  watched_.begin_step(step_ + 1, timer_);
  Metrics metrics;
  {
    const auto whole = timer_.scope("step");
    const TuningBatch batch = batch_of(step_);
    int64_t tokens = 0;
    for (const TrajectoryPtr& sample : batch) tokens += static_cast<int64_t>(sample->response_ids.size());
    progress_.begin_phase("update", tokens);
    metrics = tuner_->update(batch);
    progress_.end_phase();
    ++step_;
  }
  const int64_t an_epoch = static_cast<int64_t>(train_.size()) / config_.data.train_batch_size;
  const int64_t epoch = step_ / an_epoch;
  metrics.set("training/global_step", static_cast<double>(step_));
  metrics.set("training/epoch", static_cast<double>(epoch));
  if (validation_ && due(config_.trainer.test_freq)) {
    const auto testing = timer_.scope("testing");
    summary_.validation = tuner_->evaluate(validation_->all());
    metrics.merge(*summary_.validation);
  }
  take_reports();
  metrics.merge(std::exchange(save_metrics_, {}));
  const auto log = [&] {
    timer_.report(metrics);
    tracker_->log(step_, metrics);
  };
  if (due(config_.trainer.save_freq) || interrupted()) {
    const auto saving = timer_.scope("save_checkpoint");
    save(log);
  } else {
    log();
  }
  const double loss = metrics.get("train/loss").value_or(0);
  summary_.losses.push_back(loss);
  const auto accuracy = metrics.get("train/accuracy");
  progress_.step(
      step_, total_steps_,
      fmt::format("loss {:.4f}{}  {:.1f} s", loss, accuracy ? fmt::format("  accuracy {:.3f}", *accuracy) : "",
                  metrics.get("timing_s/step").value_or(0)));
  watched_.end_step(timer_);
}

// The step waits for a copy in memory only, where there is room for one.
void TuneRun::save(const std::function<void()>& log) {
  writer_.wait();
  take_reports();
  if (copies_ && !fits_in_memory(state_copy_bytes(tuner_->decoder()))) {
    copies_ = false;
    log_warn("there is no room for a copy of the state: each save makes its step wait (checkpoint.async_save=false)");
  }
  if (copies_) {
    tuner_->copy_state(copy_);
    log();
    writer_.start(step_, [this](const fs::path& folder, WritePace* pace) {
      tuner_->save_copy(folder, copy_, pace);
      write_file_atomic(data_state_path(folder), order_);
    });
    return;
  }
  bool logged = false;
  writer_.start(step_, [&](const fs::path& folder, WritePace*) {
    tuner_->save(folder);
    write_file_atomic(data_state_path(folder), order_);
    logged = true;
    log();
  });
  writer_.wait();
  if (!logged) log();
}

void TuneRun::take_reports() {
  while (const auto report = writer_.take_report()) {
    save_error_ = report->error;
    if (!report->error.empty()) {
      log_warn(
          fmt::format("THE CHECKPOINT OF STEP {} WAS NOT SAVED: {}. Training goes on; the checkpoint before is "
                      "untouched",
                      report->step, report->error));
      continue;
    }
    saved_step_ = report->step;
    summary_.last_checkpoint = report->folder;
    save_metrics_.merge(metrics_of(*report));
  }
}

}  // namespace tandem
