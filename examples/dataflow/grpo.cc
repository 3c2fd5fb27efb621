// GRPO as a dataflow: grpo MODEL_FOLDER.
#include "setup.h"

using namespace dataflow;

int main(int, char** argv) {
  const Setup setup(argv[1]);
  auto actor = setup.actor();
  auto reward = setup.reward();
  for (int step = 1; step <= 3; ++step) {
    const RolloutBatch drawn = actor.call<&Engine::generate>("gen", setup.prompts());
    ScoredBatch scored = reward.call<&RewardWorker::score>("reward", drawn);
    estimate_advantages(scored, {.estimator = AdvantageEstimator::kGrpo});
    const Metrics metrics = actor.call<&Engine::update_policy>("update_actor", scored.samples);
    std::cout << "step " << step << " reward " << mean_reward(scored.samples) << " grad_norm "
              << metrics.get("actor/grad_norm").value_or(0) << "\n";
    setup.store->clear();
  }
}
