#include "serve/pace.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ReplyPace, TokensASecondByTokensAReply) {
  ReplyPace pace;
  EXPECT_EQ(pace.seconds_to_turn(3, 4), 0);
  EXPECT_FALSE(pace.seconds_to_turn(4, 4)) << "nothing is known yet";
  for (int i = 0; i < 10; ++i) pace.add_pass(0.1, 4, 0, 0);
  EXPECT_FALSE(pace.seconds_to_turn(4, 4));
  pace.add_pass(0.1, 4, 2, 40);  // 40 tokens a second, 20 a reply: two replies a second
  EXPECT_EQ(pace.seconds_to_turn(3, 4), 0);
  EXPECT_NEAR(pace.seconds_to_turn(4, 4).value(), 0.5, 1e-9);
  EXPECT_NEAR(pace.seconds_to_turn(23, 4).value(), 10, 1e-9);
}

TEST(ReplyPace, FollowsAChange) {
  ReplyPace pace;
  for (int i = 0; i < 1000; ++i) pace.add_pass(0.1, 10, 1, 10);  // ten replies a second
  EXPECT_NEAR(pace.seconds_to_turn(10, 1).value(), 1, 0.01);
  for (int i = 0; i < 300; ++i) pace.add_pass(1, 10, 1, 10);  // one
  EXPECT_NEAR(pace.seconds_to_turn(10, 1).value(), 10, 0.1);
}

}  // namespace
}  // namespace tandem
