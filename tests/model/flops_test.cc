#include "model/flops.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

// Two blocks of width 4: q 4, k and v 2 each, inner 6; 10 words.
ModelConfig tiny() {
  ModelConfig config;
  config.num_hidden_layers = 2, config.hidden_size = 4, config.intermediate_size = 6, config.vocab_size = 10;
  config.num_attention_heads = 2, config.num_key_value_heads = 1, config.head_dim = 2;
  return config;
}

TEST(Flops, WorkOfAPromptAndItsResponses) {
  // Prompt of 3, response of 2: tokens 0 to 3 are computed, which see 1, 2, 3 and 4 keys.
  const SequenceWork first = work_of_sample(3, 2, false), next = work_of_sample(3, 2, true);
  EXPECT_EQ(first.tokens, 4);
  EXPECT_EQ(first.targets, 2);
  EXPECT_EQ(first.pairs, 10);
  EXPECT_EQ(next.tokens, 1);
  EXPECT_EQ(next.targets, 2);
  EXPECT_EQ(next.pairs, 4);
}

TEST(Flops, ByHand) {
  // A block's weights: q 4x4, k and v 4x2 each, o 4x4, three of 4x6: 120. The head's: 40.
  const SequenceWork work{.tokens = 4, .targets = 2, .pairs = 10};
  const double products = 2 * (2 * 120 * 4 + 40 * 2), attention = 2 * 4 * 4 * 10;  // blocks, 4 a value of q, pairs
  EXPECT_EQ(forward_flops(tiny(), work), products + attention);
  EXPECT_EQ(training_flops(tiny(), work, false), 3 * (products + attention));
  EXPECT_EQ(training_flops(tiny(), work, true), 2 * products + 3 * attention);
  ModelConfig critic = tiny();
  critic.value_head = true;
  EXPECT_EQ(forward_flops(critic, work), products + attention - 2 * 2 * (40 - 4));
}

}  // namespace
}  // namespace tandem
