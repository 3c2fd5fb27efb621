// Best-of-n distillation, an algorithm that Tandem does not have: the policy learns its own best answers as if they
// were given. best_of_n MODEL_FOLDER
#include "setup.h"

using namespace dataflow;

int main(int, char** argv) {
  Setup setup(argv[1]);
  setup.options.trainer.policy = &find_policy_loss("reinforce");  // with advantage 1: cross entropy
  auto actor = setup.actor();
  auto reward = setup.reward();
  for (int step = 1; step <= 3; ++step) {
    const RolloutBatch drawn = actor.call<&Engine::generate>("gen", setup.prompts());
    const ScoredBatch scored = reward.call<&RewardWorker::score>("reward", drawn);
    RolloutBatch best;
    for (const Sample& sample : scored.samples) {
      if (best.empty() || best.back().group != sample.group) best.push_back(sample);
      if (sample.reward > best.back().reward) best.back() = sample;
    }
    for (Sample& sample : best) sample.advantage = 1;
    const Metrics metrics = actor.call<&Engine::update_policy>("update_actor", best);
    std::cout << "step " << step << " reward " << mean_reward(best) << " loss "
              << metrics.get("actor/pg_loss").value_or(0) << "\n";
    setup.store->clear();
  }
}
