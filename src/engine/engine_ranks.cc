// An engine of several ranks: what the leader tells, what the others do, and what is put together again.
#include <algorithm>
#include <exception>

#include "base/error.h"
#include "engine/argument_shapes.h"
#include "engine/engine.h"
#include "engine/sample_exchange.h"
#include "engine/team.h"
#include "engine/wire.h"
#include "model/tensor_split.h"
#include "train/fsdp.h"
#include "train/pipeline.h"

namespace tandem {
namespace {

// A rank's prompts: in turn, so that long and short ones spread.
std::vector<DrawTask> share_of(const std::vector<DrawTask>& tasks, const Communicator& ranks) {
  std::vector<DrawTask> mine;
  for (size_t i = static_cast<size_t>(ranks.rank()); i < tasks.size(); i += static_cast<size_t>(ranks.size()))
    mine.push_back(tasks[i]);
  return mine;
}

}  // namespace

void Engine::join_team(std::shared_ptr<Team> team) {
  team_ = std::move(team);
  const Layout& layout = team_->layout();
  Communicator& world = team_->work();
  const auto along = [&](std::initializer_list<Axis> axes) {
    return world.split(ranks_along(layout, world.rank(), std::vector<Axis>(axes)));
  };
  const Layout data{.dp_replicate = layout.dp_replicate, .dp_shard = layout.dp_shard};
  check(layout.world() == world.size() && layout.cp == 1 && (layout.pp == 1 || layout.pp == layout.world()),
        "a team is a pipeline, or works with data and tensor parallelism");
  if (layout.tp > 1) {
    split_ = std::make_unique<TensorSplit>(decoder_->config(), along({Axis::kTp}));
    decoder_ =
        std::make_unique<Decoder>(split_->local_config(), split_->part_of(decoder_->weights()), options_.max_model_len);
    decoder_->split_by(split_.get());
  }
  // Ranks cut their samples as all of them do, so what each has room for is what the one with least has.
  const auto least = [&](int64_t& bytes) { bytes = std::ranges::min(all_gather_values(world, "memory", bytes)); };
  if (decoder_->on_device()) least(options_.kv_cache_bytes), least(options_.trainer.activation_bytes);
  // A pipeline's ranks draw as data-parallel ones do.
  drawing_ranks_ = along({Axis::kPp, Axis::kDpReplicate, Axis::kDpShard});
  if (layout.pp > 1) {
    pipeline_ = std::make_unique<Pipeline>(*decoder_, world);
  } else if (data.world() > 1) {
    data_ranks_ = along({Axis::kDpReplicate, Axis::kDpShard});
    sharded_ = std::make_unique<FullyShardedModel>(*decoder_, *data_ranks_, data);
  }
}

void Engine::enter_rollout() {
  if (sharded_) sharded_->enter_rollout();
  if (pipeline_) pipeline_->enter_rollout();
}

Engine::~Engine() {
  if (!leads() || team_->abandoned() || std::uncaught_exceptions() > 0) return;
  try {
    team_->tell(Order::kStop, {});
  } catch (const std::exception&) {  // a rank is gone; the run has said so
  }
}

bool Engine::leads() const { return team_ && team_->leads(); }

const ModelConfig& Engine::whole_config() const { return split_ ? split_->whole_config() : decoder_->config(); }

void Engine::follow() {
  check(team_ && !team_->leads(), "only the ranks of a team that do not lead it can follow");
  for (;;) {
    const auto [order, held, payload] = team_->next();
    const auto drawn = [&](const std::vector<DrawTask>& tasks, const SamplingParams& sampling) {
      if (held) team_->hold(order, [&] { return shapes_of(tasks); });
      if (order != Order::kGenerate) return static_cast<void>(draw(tasks, sampling));
      for (const TrajectoryPtr& trajectory : draw(tasks, sampling))
        drawn_here_[{trajectory->prompt->id, trajectory->sample_index}] = trajectory;
    };
    switch (order) {
      case Order::kGenerate:
        if (payload.front() != 0) drawn_here_.clear();
        drawn(decode_tasks(payload.substr(1)), options_.sampling);
        break;
      case Order::kGenerateValidation:
        drawn(decode_tasks(payload), options_.validation_sampling);
        break;
      case Order::kGenerateGreedy:
        drawn(decode_tasks(payload), greedy_sampling());
        break;
      case Order::kUpdate: {
        const std::vector<SampleName> names = decode_names(payload);
        if (held) team_->hold(order, [&] { return shapes_of(names); });
        train(exchange_samples(team_->work(), names, {}, drawn_here_));
        break;
      }
      case Order::kSave:
        gather_state();
        break;
      case Order::kLoad:
        load_state(payload);
        break;
      case Order::kRestore:
        restore_state(nullptr);
        break;
      case Order::kStop:
        return;
    }
  }
}

std::vector<TrajectoryPtr> Engine::draw(const std::vector<DrawTask>& tasks, const SamplingParams& sampling,
                                        const RecordDrawn& record) {
  if (!team_) return draw_here(tasks, sampling, record);
  enter_rollout();
  std::vector<TrajectoryPtr> mine = draw_here(share_of(tasks, *drawing_ranks_), sampling, record);
  // The ranks of a tensor-parallel group draw the same: one of them tells.
  const Communicator& world = team_->work();
  const bool tells = !team_->leads() && at(coordinates(team_->layout(), world.rank()), Axis::kTp) == 0;
  const auto parts =
      gather_text(team_->work(), "gather of responses", tells ? encode_trajectories(mine) : std::string(), 0);
  if (!team_->leads()) return tells ? mine : std::vector<TrajectoryPtr>();
  std::vector<PromptPtr> prompts;
  for (const DrawTask& task : tasks) prompts.push_back(task.prompt);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].empty()) continue;
    for (TrajectoryPtr& trajectory : decode_trajectories(parts[rank], prompts)) {
      owners_[trajectory.get()] = static_cast<int32_t>(rank);
      if (record) record(trajectory);
      tell_finished(trajectory);
      mine.push_back(std::move(trajectory));
    }
  }
  return mine;
}

// By the leader, for its team.
void Engine::tell_update(const std::vector<TrainingSample>& samples) {
  std::vector<SampleName> names;
  for (const TrainingSample& sample : samples) {
    const Trajectory& t = *sample.trajectory;
    const auto owner = owners_.find(&t);
    names.push_back({t.prompt->id, t.sample_index, owner == owners_.end() ? 0 : owner->second,
                     static_cast<uint32_t>(t.prompt->token_ids.size()), static_cast<uint32_t>(t.response_ids.size()),
                     sample.advantage});
  }
  team_->tell(Order::kUpdate, encode_names(names));
  exchange_samples(team_->work(), names, samples, {});
}

UpdateStats Engine::train(const std::vector<TrainingSample>& samples) {
  if (!optimizer_) optimizer_ = new_optimizer();
  if (sharded_) sharded_->enter_training();
  if (pipeline_) pipeline_->enter_training();
  TrainerOptions options = options_.trainer;
  if (options_.exact) options.weights_version = policy_version_;
  Trainer trainer(pipeline_ ? pipeline_->stage() : *decoder_, *optimizer_, options, {sharded_.get(), pipeline_.get()});
  const UpdateStats stats = trainer.update(samples, options_.on_tokens);
  ++policy_version_;
  return stats;
}

std::unique_ptr<Optimizer> Engine::new_optimizer() const {
  if (sharded_) return std::make_unique<Optimizer>(sharded_->shards(), options_.optimizer);
  if (pipeline_) return std::make_unique<Optimizer>(pipeline_->stage().weights(), options_.optimizer);
  return std::make_unique<Optimizer>(decoder_->weights(), options_.optimizer);
}

Engine::WholeState Engine::gather_state() {
  const bool keep = !sharded_ || split_ || team_->leads();  // the others only give their parts
  const auto whole = [&](DecoderWeights part) {
    if (pipeline_) return pipeline_->gathered(part);
    if (sharded_) part = sharded_->gathered(part, keep);
    return split_ ? split_->gathered(part) : part;
  };
  enter_rollout();
  const std::shared_ptr<DecoderWeights> masters = sharded_ ? sharded_->shards().masters : nullptr;
  DecoderWeights weights = masters  ? whole(*masters)
                           : split_ ? split_->gathered(decoder_->weights())
                                    : decoder_->weights();
  WholeState state;
  if (keep) state.decoder = std::make_unique<Decoder>(whole_config(), std::move(weights), 1);
  if (!optimizer_) return state;
  DecoderWeights first = whole(optimizer_->first_moment()), second = whole(optimizer_->second_moment());
  if (!keep) return state;
  state.optimizer = std::make_unique<Optimizer>(std::move(first), std::move(second), options_.optimizer);
  state.optimizer->set_num_steps(optimizer_->num_steps());
  return state;
}

// Every rank reads the files itself.
void Engine::load_state(const std::filesystem::path& folder) {
  enter_rollout();
  std::unique_ptr<Decoder> whole;  // what a tensor-parallel decoder is a part of
  if (split_) whole = std::make_unique<Decoder>(whole_config(), empty_weights(whole_config()), 1);
  Decoder& target = whole ? *whole : *decoder_;
  std::unique_ptr<Optimizer> loaded;
  const auto version =
      load_model_state(folder / "actor", target, options_.optimizer, team_ ? loaded : optimizer_, options_.load);
  policy_version_ = version.value_or(policy_version_);
  if (team_) take_whole(options_.load.weights ? &target : nullptr, loaded.get());
}

// The leader's copy goes to all ranks, which then take their parts.
void Engine::restore_state(const ModelStateCopy* copy) {
  if (!team_) {
    restore_model_state(*copy, *decoder_, options_.optimizer, optimizer_);
    policy_version_ = copy->version;
    return;
  }
  enter_rollout();
  Communicator& world = team_->work();
  Decoder whole(whole_config(), empty_weights(whole_config()), 1);
  std::unique_ptr<Optimizer> state;
  struct {
    uint64_t version = 0;
    int64_t optimizer_steps = 0;
    bool has_optimizer = false;
  } about;
  if (copy != nullptr) {
    restore_model_state(*copy, whole, options_.optimizer, state);
    about = {copy->version, state ? state->num_steps() : 0, state != nullptr};
  }
  broadcast(world, "state to restore", bytes_of(&about, 1), 0);
  if (about.has_optimizer && !state) state = std::make_unique<Optimizer>(whole.weights(), options_.optimizer);
  std::vector<NamedTensor> all = parameters(whole.weights());
  if (state)
    for (const DecoderWeights* moments : {&state->first_moment(), &state->second_moment()})
      for (NamedTensor& moment : parameters(*moments)) all.push_back(std::move(moment));
  for (const NamedTensor& parameter : all)
    broadcast(world, "state to restore", bytes_of(values(parameter.tensor).data(), values(parameter.tensor).size()), 0);
  policy_version_ = about.version;
  if (state) state->set_num_steps(about.optimizer_steps);
  optimizer_.reset();
  take_whole(&whole, state.get());
}

// This rank's parts of a whole state; null: not to be taken.
void Engine::take_whole(const Decoder* whole, Optimizer* optimizer) {
  if (whole != nullptr && whole != decoder_.get())
    set_weights(*decoder_, split_ ? split_->part_of(whole->weights()) : whole->weights());
  if (sharded_ && whole != nullptr) sharded_->take_weights_from_decoder();
  if (optimizer == nullptr) return;
  const auto part = [&](DecoderWeights all) {
    if (pipeline_) return pipeline_->part_of(all);
    if (split_) all = split_->part_of(all);
    if (sharded_) all = sharded_->parts_of(all);
    return converted(all, at::device(decoder_->device()).dtype(at::kFloat));
  };
  optimizer_ = std::make_unique<Optimizer>(part(optimizer->first_moment()), part(optimizer->second_moment()),
                                           options_.optimizer);
  optimizer_->set_num_steps(optimizer->num_steps());
}

}  // namespace tandem
