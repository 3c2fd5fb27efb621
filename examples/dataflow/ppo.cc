// PPO with a critic as a dataflow: ppo MODEL_FOLDER.
#include "setup.h"

using namespace dataflow;

int main(int, char** argv) {
  const Setup setup(argv[1]);
  auto actor = setup.actor();
  auto critic = setup.critic();
  auto reward = setup.reward();
  auto advantages = setup.token_advantages();
  for (int step = 1; step <= 3; ++step) {
    const RolloutBatch drawn = actor.call<&Engine::generate>("gen", setup.prompts());
    const ScoredBatch scored = reward.call<&RewardWorker::score>("reward", drawn);
    const RolloutBatch valued = critic.call<&Critic::compute_values>("values", scored.samples);
    const auto estimated = advantages.call<&TokenAdvantages::estimate>("adv", TokenAdvantageRequest{.samples = valued});
    Metrics metrics = critic.call<&Critic::update_values>("update_critic", estimated.samples);
    metrics.merge(actor.call<&Engine::update_policy>("update_actor", estimated.samples));
    std::cout << "step " << step << " reward " << mean_reward(scored.samples) << " vf_loss "
              << metrics.get("critic/vf_loss").value_or(0) << "\n";
    setup.store->clear();
  }
}
