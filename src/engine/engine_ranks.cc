// An engine of several ranks: what the leader tells, what the others do, and what is put together again.
#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/shared_memory.h"
#include "engine/engine.h"
#include "engine/model_parts.h"
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
  check(!has_adapters(decoder_->weights()), "adapters are one rank's");
  parts_ = std::make_unique<ModelParts>(whole_config(), layout);
  if (options_.read_on_joining) read_own_weights(options_.model_path);
}

void Engine::enter_rollout() {
  if (sharded_) sharded_->enter_rollout();
  if (pipeline_) pipeline_->enter_rollout();
}

void Engine::enter_training() {
  if (sharded_) sharded_->enter_training();
  if (pipeline_) pipeline_->enter_training();
}

DecoderWeights& Engine::own_part() {
  if (sharded_) return sharded_->shards();
  return pipeline_ ? pipeline_->stage().weights() : decoder_->weights();
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
    const auto [order, payload] = team_->next();
    switch (order) {
      case Order::kGenerate:
        draw(decode_tasks(payload), options_.sampling);
        break;
      case Order::kGenerateValidation:
        draw(decode_tasks(payload), options_.validation_sampling);
        break;
      case Order::kGenerateGreedy:
        draw(decode_tasks(payload), greedy_sampling());
        break;
      case Order::kUpdate:
        train(decode_samples(payload));
        break;
      case Order::kSave:
        copy_part(SharedMemory::open(payload, state_bytes()));
        break;
      case Order::kLoad:
        load_part(payload);
        break;
      case Order::kRestore:
        follow_restore(payload);
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
  if (!team_->leads()) return {};
  std::vector<PromptPtr> prompts;
  for (const DrawTask& task : tasks) prompts.push_back(task.prompt);
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    for (TrajectoryPtr& trajectory : decode_trajectories(part, prompts)) {
      if (record) record(trajectory);
      tell_finished(trajectory);
      mine.push_back(std::move(trajectory));
    }
  }
  return mine;
}

UpdateStats Engine::train(const std::vector<TrainingSample>& samples) {
  if (!optimizer_) optimizer_ = new_optimizer();
  enter_training();
  TrainerOptions options = options_.trainer;
  if (options_.exact) options.weights_version = policy_version_;
  Trainer trainer(pipeline_ ? pipeline_->stage() : *decoder_, *optimizer_, options, {sharded_.get(), pipeline_.get()});
  const UpdateStats stats = trainer.update(samples, options_.on_tokens);
  ++policy_version_;
  return stats;
}

std::unique_ptr<Optimizer> Engine::new_optimizer() {
  return std::make_unique<Optimizer>(own_part(), options_.optimizer);
}

}  // namespace tandem
