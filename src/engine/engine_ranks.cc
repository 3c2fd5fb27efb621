// An engine of several ranks: what the leader tells, what the others do, and what is put together again.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "engine/argument_shapes.h"
#include "engine/engine.h"
#include "engine/model_parts.h"
#include "engine/sample_exchange.h"
#include "engine/team.h"
#include "engine/wire.h"
#include "model/placements.h"
#include "model/sequence_split.h"
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

ExchangeObserver recorded_exchanges(const std::shared_ptr<TraceSlot>& trace) {
  return [trace](const Exchanged& exchanged) {
    const auto recorder = trace->get();
    if (!recorder) return;
    Metrics bytes;
    bytes.set("bytes_sent", static_cast<double>(exchanged.bytes_sent));
    bytes.set("bytes_received", static_cast<double>(exchanged.bytes_received));
    recorder->span("collectives", exchanged.operation, exchanged.begin, exchanged.end, bytes);
  };
}

// What the leader calls the same work.
const char* phase_of(Order order) {
  switch (order) {
    case Order::kGenerate:
      return "gen";
    case Order::kGenerateValidation:
      return "testing";
    case Order::kGenerateGreedy:
      return "gen_max";
    case Order::kUpdate:
      return "update_actor";
    case Order::kSave:
      return "save_checkpoint";
    default:
      return nullptr;
  }
}

// An order's span in the trace of a rank that carries it out.
class OrderSpan {
 public:
  OrderSpan(const std::shared_ptr<TraceSlot>& trace, Order order)
      : phase_(phase_of(order)), recorder_(trace && phase_ != nullptr ? trace->get() : nullptr) {
    if (recorder_) recorder_->open(phase_, TraceRecorder::Clock::now());
  }
  ~OrderSpan() {
    if (recorder_) recorder_->close(phase_, TraceRecorder::Clock::now());
  }
  OrderSpan(const OrderSpan&) = delete;
  OrderSpan& operator=(const OrderSpan&) = delete;

 private:
  const char* phase_;
  std::shared_ptr<TraceRecorder> recorder_;
};

struct TraceStart {
  int64_t step, start_ns;  // the steady clock's, which all processes of a machine share
};

}  // namespace

void Engine::trace_kernels() {
  if (!decoder_->on_device()) return;
  kernels_.emplace(load_cupti());
  kernels_->start();
}

void Engine::add_kernels(TraceRecorder& recorder) {
  if (!kernels_) return;
  kernels::synchronize(decoder_->weights().embed_VE);
  const size_t left_out = kernels_->stop(recorder);
  kernels_.reset();
  if (left_out > 0)
    log_info(fmt::format("the trace of step {} leaves out the last {} kernels", recorder.step(), left_out));
}

void Engine::begin_trace(const TraceRecorder& recorder) {
  trace_kernels();
  if (!leads()) return;
  const TraceStart start{recorder.step(), recorder.start().time_since_epoch() / std::chrono::nanoseconds(1)};
  team_->tell(Order::kBeginTrace, std::string(reinterpret_cast<const char*>(&start), sizeof start));
}

void Engine::end_trace(TraceRecorder& recorder) {
  add_kernels(recorder);
  if (!leads()) return;
  options_.trace->set(nullptr);  // what follows is no part of the step
  team_->tell(Order::kEndTrace, {});
  auto parts = gather_text(team_->work(), "gather of traces", {}, 0);
  for (size_t rank = 1; rank < parts.size(); ++rank) recorder.add_events(std::move(parts[rank]));
}

void Engine::follow_trace(const std::string& payload) {
  TraceStart start{};
  check(options_.trace && payload.size() == sizeof start, "a rank is asked for a trace that it has no place for");
  std::memcpy(&start, payload.data(), sizeof start);
  const TraceRecorder::Clock::time_point begin{std::chrono::nanoseconds(start.start_ns)};
  options_.trace->set(std::make_shared<TraceRecorder>(start.step, begin, team_->work().rank()));
  trace_kernels();
}

void Engine::give_trace() {
  const auto recorder = options_.trace ? options_.trace->get() : nullptr;
  if (recorder) {
    options_.trace->set(nullptr);
    add_kernels(*recorder);
  }
  gather_text(team_->work(), "gather of traces", recorder ? recorder->events() : std::string(), 0);
}

void Engine::join_team(std::shared_ptr<Team> team) {
  team_ = std::move(team);
  if (options_.trace) team_->work().observe(std::make_shared<ExchangeObserver>(recorded_exchanges(options_.trace)));
  const Layout& layout = team_->layout();
  Communicator& world = team_->work();
  const auto along = [&](std::initializer_list<Axis> axes) {
    return world.split(ranks_along(layout, world.rank(), std::vector<Axis>(axes)));
  };
  // Ranks that share sequences have the same parameters to train: to sharding they are as any others.
  const Layout data{.dp_replicate = layout.dp_replicate, .dp_shard = layout.dp_shard * layout.cp};
  check(layout.world() == world.size(), "a team's ranks are those of its layout");
  check_layout(decoder_->config(), layout);
  if (layout.tp > 1) {
    split_ = std::make_unique<TensorSplit>(decoder_->config(), along({Axis::kTp}));
    decoder_ =
        std::make_unique<Decoder>(split_->local_config(), split_->part_of(decoder_->weights()), options_.max_model_len);
    decoder_->split_by(split_.get());
  }
  // Ranks cut their samples as all of them do, so what each has room for is what the one with least has.
  const auto least = [&](int64_t& bytes) { bytes = std::ranges::min(all_gather_values(world, "memory", bytes)); };
  if (decoder_->on_device()) least(options_.kv_cache_bytes), least(options_.trainer.activation_bytes);
  // Those of a pipeline, and those that share sequences in training, draw as data-parallel ones do.
  drawing_ranks_ = along({Axis::kPp, Axis::kDpReplicate, Axis::kDpShard, Axis::kCp});
  if (layout.cp > 1) {
    sequences_ = std::make_unique<SequenceSplit>(along({Axis::kCp}));
    decoder_->split_sequences_by(sequences_.get());
    options_.trainer.max_micro_tokens *= layout.cp;  // it counts a rank's
  }
  if (layout.pp > 1) pipeline_ = std::make_unique<Pipeline>(*decoder_, along({Axis::kPp}), layout.chunks);
  if (data.world() > 1) {
    const Axis axes[] = {Axis::kDpReplicate, Axis::kDpShard, Axis::kCp};
    const std::vector<int> members = ranks_along(layout, world.rank(), axes);
    data_ranks_ = world.split(members);
    Decoder& whole = pipeline_ ? pipeline_->stage() : *decoder_;
    sharded_ = std::make_unique<FullyShardedModel>(whole, *data_ranks_, data, team_->routing_of(members),
                                                   pipeline_ ? pipeline_->held() : std::vector<size_t>{});
    if (const std::string table = sharded_->route_table(); leads() && !table.empty()) log_info(table);
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
  if (pipeline_) pipeline_->enter_training();
  if (sharded_) sharded_->enter_training();
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
    const Instruction told = team_->next();
    const Order order = told.order;
    const bool held = told.held;
    const std::string& payload = told.payload;
    const OrderSpan span(options_.trace, order);
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
        copy_part(SharedMemory::open(payload, state_bytes()));
        break;
      case Order::kLoad:
        load_part(payload);
        break;
      case Order::kRestore:
        follow_restore(payload);
        break;
      case Order::kBeginTrace:
        follow_trace(payload);
        break;
      case Order::kEndTrace:
        give_trace();
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
  enter_training();
  TrainerOptions options = options_.trainer;
  if (options_.exact) options.weights_version = policy_version_;
  Trainer trainer(pipeline_ ? pipeline_->stage() : *decoder_, *optimizer_, options, {sharded_.get(), pipeline_.get()});
  const UpdateStats stats = trainer.update(samples, options_.on_tokens);
  if (sharded_) sharded_->step_done();
  ++policy_version_;
  return stats;
}

std::unique_ptr<Optimizer> Engine::new_optimizer() {
  return std::make_unique<Optimizer>(own_part(), options_.optimizer);
}

}  // namespace tandem
