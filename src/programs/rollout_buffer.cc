#include "programs/rollout_buffer.h"

#include "base/error.h"
#include "control/record_log.h"
#include "data/payload.h"

namespace tandem {
namespace {

enum RecordType : uint32_t { kRollout = 1, kSample = 2 };

std::string payload_of(const RolloutSample& sample) {
  const Trajectory& t = *sample.trajectory;
  PayloadWriter out;
  prompt_fields(out, *t.prompt);
  trajectory_fields(out, t);
  return out.put(sample.score).put(sample.reward).put(sample.advantage).bytes();
}

RolloutSample sample_of(PayloadReader in) {
  auto prompt = std::make_shared<Prompt>();
  prompt_fields(in, *prompt);
  auto t = std::make_shared<Trajectory>();
  t->prompt = std::move(prompt);
  trajectory_fields(in, *t);
  const auto score = in.get<double>(), reward = in.get<double>(), advantage = in.get<double>();
  return {std::move(t), score, reward, advantage};
}

}  // namespace

void RolloutBuffer::add(int64_t step, const RolloutBatch& batch, const TrajectoryStore& store) {
  auto rollout = std::make_shared<Rollout>();
  rollout->step = step;
  for (const Sample& sample : batch)
    rollout->samples.push_back({store.get(sample.handle), sample.score, sample.reward, sample.advantage});
  rollouts_.push_back(std::move(rollout));
  while (rollouts_.size() > most_) rollouts_.pop_front();
}

void write_rollouts(const std::filesystem::path& path, const std::deque<std::shared_ptr<const Rollout>>& rollouts) {
  RecordWriter file(path, 0);
  for (const auto& rollout : rollouts) {
    file.append(kRollout, PayloadWriter().put(rollout->step).put<uint64_t>(rollout->samples.size()).bytes());
    for (const RolloutSample& sample : rollout->samples) file.append(kSample, payload_of(sample));
  }
}

std::deque<std::shared_ptr<const Rollout>> read_rollouts(const std::filesystem::path& path) {
  std::deque<std::shared_ptr<const Rollout>> rollouts;
  std::shared_ptr<Rollout> last;
  uint64_t missing = 0;
  const auto on_record = [&](uint32_t type, std::span<const std::byte> payload, uint64_t) {
    PayloadReader in(payload);
    if (type == kRollout) {
      last = std::make_shared<Rollout>();
      last->step = in.get<int64_t>();
      missing += in.get<uint64_t>();
      rollouts.push_back(last);
    } else if (last && missing > 0) {
      last->samples.push_back(sample_of(in));
      --missing;
    }
  };
  const RecordScan scan = scan_records(path, on_record);
  if (scan.damaged_bytes + scan.torn_bytes > 0 || missing > 0)
    throw IoError(path.string() + " is damaged or incomplete; use another checkpoint");
  return rollouts;
}

}  // namespace tandem
