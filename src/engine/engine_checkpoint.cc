// What an engine saves and loads. Of several ranks each has a part of the state: a copy is made in memory that all of
// them see, in which every element has its place whatever the layout; files are read by each rank where it holds.
#include <fmt/format.h>

#include <chrono>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/shared_memory.h"
#include "engine/engine.h"
#include "engine/model_parts.h"
#include "engine/team.h"
#include "train/fsdp.h"
#include "train/pipeline.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKinds = 3;  // weights and two moments

struct WholeViews {
  DecoderWeights weights, exp_avg, exp_avg_sq;
};

WholeViews views_of(const ModelConfig& config, const SharedMemory& memory) {
  const size_t whole = whole_bytes(config);
  std::byte* data = memory.bytes().data();
  return {weights_in(config, data), weights_in(config, data + whole), weights_in(config, data + 2 * whole)};
}

// To those that follow.
std::string restore_notice(const ModelStateCopy& copy) {
  return fmt::format("{} {} {} {}", copy.memory->path(), copy.exp_avg.layers.empty() ? 0 : 1, copy.optimizer_steps,
                     copy.version);
}

// The same state where all ranks see it.
ModelStateCopy shared_copy(const ModelStateCopy& copy, const ModelConfig& config) {
  ModelStateCopy shared = copy;
  shared.memory = std::make_shared<SharedMemory>(kKinds * whole_bytes(config));
  const WholeViews views = views_of(config, *shared.memory);
  const auto fill = [](const DecoderWeights& from, const DecoderWeights& to) {
    const auto source = parameters(from), target = parameters(to);
    for (size_t i = 0; i < source.size(); ++i) target[i].tensor.copy_(source[i].tensor);
  };
  fill(copy.weights, views.weights);
  fill(copy.exp_avg, views.exp_avg), fill(copy.exp_avg_sq, views.exp_avg_sq);
  return shared;
}

}  // namespace

uint64_t Engine::state_bytes() const {
  return team_ ? kKinds * whole_bytes(whole_config()) : state_copy_bytes(*decoder_);
}

void Engine::save(const fs::path& folder) {
  if (!team_)
    return save_model_state(folder / "actor", options_.model_path, *decoder_, optimizer_.get(), policy_version_,
                            options_.save);
  ModelStateCopy copy;
  copy_state(copy);
  save_copy(folder, copy, nullptr);
}

void Engine::save_copy(const fs::path& folder, const ModelStateCopy& copy, WritePace* pace) const {
  save_model_copy(folder / "actor", options_.model_path, whole_config(), copy, options_.save, pace, parts_.get());
}

void Engine::copy_state(ModelStateCopy& into) {
  if (!team_) return copy_model_state(*decoder_, optimizer_.get(), policy_version_, into);
  if (!into.memory) into.memory = std::make_shared<SharedMemory>(state_bytes());
  team_->tell(Order::kSave, into.memory->path());
  copy_part(*into.memory);
  WholeViews views = views_of(whole_config(), *into.memory);
  into.weights = std::move(views.weights);
  into.exp_avg = into.exp_avg_sq = {};
  if (optimizer_) into.exp_avg = std::move(views.exp_avg), into.exp_avg_sq = std::move(views.exp_avg_sq);
  into.optimizer_steps = optimizer_ ? optimizer_->num_steps() : 0;
  into.version = policy_version_;
}

void Engine::copy_part(const SharedMemory& memory) {
  const WholeViews views = views_of(whole_config(), memory);
  const int rank = team_->work().rank();
  parts_->put(rank, masters(own_part()), views.weights);
  if (optimizer_) {
    parts_->put(rank, optimizer_->first_moment(), views.exp_avg);
    parts_->put(rank, optimizer_->second_moment(), views.exp_avg_sq);
  }
  barrier(team_->work(), "copy of the state");
}

void Engine::restore(const ModelStateCopy& copy) {
  if (!team_) {
    restore_model_state(copy, *decoder_, options_.optimizer, optimizer_);
    policy_version_ = copy.version;
    return;
  }
  if (!copy.memory) return restore(shared_copy(copy, whole_config()));  // one rank's
  team_->tell(Order::kRestore, restore_notice(copy));
  restore_part(*copy.memory, !copy.exp_avg.layers.empty(), copy.optimizer_steps, copy.version);
}

void Engine::follow_restore(const std::string& notice) {
  std::istringstream words(notice);
  std::string path;
  bool has_optimizer = false;
  int64_t optimizer_steps = 0;
  uint64_t version = 0;
  words >> path >> has_optimizer >> optimizer_steps >> version;
  restore_part(SharedMemory::open(path, state_bytes()), has_optimizer, optimizer_steps, version);
}

void Engine::restore_part(const SharedMemory& memory, bool has_optimizer, int64_t optimizer_steps, uint64_t version) {
  const WholeViews views = views_of(whole_config(), memory);
  const int rank = team_->work().rank();
  begin_new_part();
  parts_->take(rank, views.weights, masters(own_part()));
  own_part_changed();
  optimizer_ = has_optimizer ? new_optimizer() : nullptr;
  if (optimizer_) {
    parts_->take(rank, views.exp_avg, optimizer_->first_moment());
    parts_->take(rank, views.exp_avg_sq, optimizer_->second_moment());
    optimizer_->set_num_steps(optimizer_steps);
  }
  policy_version_ = version;
  barrier(team_->work(), "restoring of the state");  // the leader may write over it then
}

void Engine::begin_new_part() {
  if (pipeline_) pipeline_->enter_training();
  if (sharded_) sharded_->leave_rollout();
}

// What computes follows what is exact.
void Engine::own_part_changed() {
  DecoderWeights& computing = own_part();
  if (computing.masters) {
    const auto from = parameters(*computing.masters), to = parameters(computing);
    for (size_t i = 0; i < to.size(); ++i) to[i].tensor.copy_(from[i].tensor);
  }
  if (sharded_) sharded_->parts_changed();
}

void Engine::load(const fs::path& folder) {
  if (!team_) {
    const auto version = load_model_state(folder / "actor", *decoder_, options_.optimizer, optimizer_, options_.load);
    policy_version_ = version.value_or(policy_version_);
    return;
  }
  if (leads()) team_->tell(Order::kLoad, folder.string());
  load_part(folder);
}

void Engine::load_part(const fs::path& folder) {
  const CheckpointContents& contents = options_.load;
  const fs::path actor = folder / "actor";
  if (contents.weights) {
    refuse_adapters(actor);
    read_own_weights(actor / "huggingface");
  }
  if (!contents.extra && !contents.optimizer) return;
  const SavedProgress progress = read_progress(actor);
  if (contents.optimizer && progress.optimizer_steps > 0) {
    const ShardedFolder files = moment_files(actor);
    optimizer_ = new_optimizer();
    const int rank = team_->work().rank();
    parts_->read(rank, files, kFirstMoment, optimizer_->first_moment());
    parts_->read(rank, files, kSecondMoment, optimizer_->second_moment());
    optimizer_->set_num_steps(progress.optimizer_steps);
  }
  if (contents.extra) policy_version_ = progress.version;
}

void Engine::read_own_weights(const fs::path& folder) {
  const auto start = std::chrono::steady_clock::now();
  const ShardedFolder files(folder, weight_files(folder));
  begin_new_part();
  loading_.own_bytes = static_cast<int64_t>(parts_->read(team_->work().rank(), files, "", masters(own_part())));
  own_part_changed();
  const std::vector<int64_t> all = all_gather_values(team_->work(), "reading of the weights", loading_.own_bytes);
  loading_.all_bytes = std::accumulate(all.begin(), all.end(), int64_t{0});
  loading_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tandem
