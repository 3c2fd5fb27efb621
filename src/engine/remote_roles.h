// Roles in processes of their own. The run's first process asks, by the same calls as of a role of its own; the role's
// process answers until the asker is gone or lets it go. It computes on the same numbers, so it ends in the same bits.
#pragma once

#include <memory>
#include <string>

#include "engine/critic.h"
#include "engine/reference.h"
#include "parallel/communicator.h"

namespace tandem {

// A group of two: rank 0 asks, rank 1 is the role.
class RoleLink {
 public:
  // `group` waits as long as work lasts; a side that is gone ends the other's wait at once.
  explicit RoleLink(std::unique_ptr<Communicator> group) : group_(std::move(group)) {}

  Communicator& group() { return *group_; }
  // What the role answered. DataError with the role's own words where it could not.
  std::string ask(char question, const std::string& payload);
  std::string next();  // the role: a question and its payload
  void answer(const std::string& payload, bool went_well = true);

 private:
  std::unique_ptr<Communicator> group_;
};

class RemoteReference final : public Reference {
 public:
  RemoteReference(const ReferenceOptions& options, std::shared_ptr<TrajectoryStore> store);
  ~RemoteReference() override;
  void join(std::shared_ptr<RoleLink> link) { link_ = std::move(link); }

 private:
  std::vector<std::vector<float>> logprobs_of(const RolloutBatch& batch) override;
  std::shared_ptr<RoleLink> link_;
};

class RemoteCritic final : public Critic {
 public:
  RemoteCritic(CriticOptions options, std::shared_ptr<TrajectoryStore> store);
  ~RemoteCritic() override;
  void join(std::shared_ptr<RoleLink> link) { link_ = std::move(link); }

  RolloutBatch compute_values(const RolloutBatch& batch) override;
  Metrics update_values(const RolloutBatch& batch) override;
  void save(const std::filesystem::path& folder) const override;
  void load(const std::filesystem::path& folder) override;
  void copy_state(ModelStateCopy& into) const override;
  void restore(const ModelStateCopy& copy) override;
  const ModelConfig& model() const override { return model_; }
  uint64_t state_bytes() const override;

 private:
  ModelConfig model_;
  std::shared_ptr<RoleLink> link_;
};

// The role's process: answers until it is let go. CommunicationError where the asker is gone.
void serve_reference(Reference& reference, TrajectoryStore& store, RoleLink& link);
void serve_critic(Critic& critic, TrajectoryStore& store, RoleLink& link);

}  // namespace tandem
