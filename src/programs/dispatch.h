// How this folder's records cross worker groups (control/dispatch.h), and what their methods are called.
#pragma once

#include "control/worker_group.h"
#include "engine/critic.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "engine/token_advantages.h"
#include "reward/reward_worker.h"

namespace tandem {

template <>
struct Dispatch<ScoredBatch> {
  static ScoredBatch merge(const std::vector<ScoredBatch>& parts) {
    ScoredBatch whole;
    for (const ScoredBatch& part : parts) {
      whole.samples.insert(whole.samples.end(), part.samples.begin(), part.samples.end());
      whole.extras.insert(whole.extras.end(), part.extras.begin(), part.extras.end());
    }
    return whole;
  }
};

template <>
struct Dispatch<CorrectedBatch> {
  static CorrectedBatch merge(const std::vector<CorrectedBatch>& parts) {
    std::vector<RolloutBatch> samples;
    for (const CorrectedBatch& part : parts) samples.push_back(part.samples);
    return {Dispatch<RolloutBatch>::merge(samples), parts.front().metrics};
  }
};

template <>
inline constexpr std::string_view kMethodName<&Engine::generate> = "actor.generate";
template <>
inline constexpr std::string_view kMethodName<&Engine::generate_greedy> = "actor.generate_greedy";
template <>
inline constexpr std::string_view kMethodName<&Engine::generate_validation> = "actor.validate";
template <>
inline constexpr std::string_view kMethodName<&Engine::correct_rollout> = "actor.correct_rollout";
template <>
inline constexpr std::string_view kMethodName<&Engine::compute_squared_probs> = "actor.squared_probs";
template <>
inline constexpr std::string_view kMethodName<&Engine::update_policy> = "actor.update";
template <>
inline constexpr std::string_view kMethodName<&Reference::compute_logprobs> = "reference.logprobs";
template <>
inline constexpr std::string_view kMethodName<&TokenAdvantages::estimate> = "advantages.estimate";
template <>
inline constexpr std::string_view kMethodName<&Critic::compute_values> = "critic.values";
template <>
inline constexpr std::string_view kMethodName<&Critic::update_values> = "critic.update";
template <>
inline constexpr std::string_view kMethodName<&RewardWorker::score> = "reward.score";

inline constexpr std::string_view kMethodNames[] = {
    kMethodName<&Engine::generate>,
    kMethodName<&Engine::generate_greedy>,
    kMethodName<&Engine::generate_validation>,
    kMethodName<&Engine::correct_rollout>,
    kMethodName<&Engine::compute_squared_probs>,
    kMethodName<&Engine::update_policy>,
    kMethodName<&Reference::compute_logprobs>,
    kMethodName<&TokenAdvantages::estimate>,
    kMethodName<&Critic::compute_values>,
    kMethodName<&Critic::update_values>,
    kMethodName<&RewardWorker::score>,
};

inline std::string shapes_of(const TokenAdvantageRequest& request) { return shapes_of(request.samples); }

}  // namespace tandem
