// A program of one's own on Tandem's libraries: scores answers with the rules that training uses.
#include <iostream>

#include "base/error.h"
#include "reward/reward.h"

int main() {
  const std::vector<tandem::RewardRequest> requests = {
      {.data_source = "openai/gsm8k",
       .solution_str = "6 eggs a day for 3 days: 6 * 3 = 18.\n#### 18",
       .ground_truth = "18"},
      {.data_source = "openai/gsm8k", .solution_str = "6 + 3 = 9.\n#### 9", .ground_truth = "18"},
  };
  try {
    const auto reward = tandem::make_reward({.rule = "gsm8k"});
    for (const tandem::RewardResult& result : reward->score(requests)) std::cout << "score " << result.score << "\n";
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
