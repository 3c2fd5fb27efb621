// Masters of weights that were rounded to bf16: they round back to the same, and lie evenly between the neighbours.
#include <bit>

#include "kernels/reference.h"

namespace tandem::kernels {
namespace {

TEST(SpreadRounded, RoundsBackAndLiesEvenly) {
  const at::Tensor rounded = random_tensor({100000}, 1).to(at::kBFloat16).to(at::kFloat);
  at::Tensor spread = rounded.clone();
  spread_rounded(spread, 7);
  EXPECT_TRUE(same_bits(floats(spread.to(at::kBFloat16).to(at::kFloat)), floats(rounded)));
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < rounded.numel(); ++i) {
    const auto from = std::bit_cast<int32_t>(floats(rounded)[i]), to = std::bit_cast<int32_t>(floats(spread)[i]);
    const double place = (to - from) / 65536.0;  // of a step between neighbours
    sum += place, squares += place * place;
  }
  EXPECT_NEAR(sum / 1e5, 0, 4 * std::sqrt(1 / 12.0 / 1e5));  // four standard errors of an even spread over one step
  EXPECT_NEAR(squares / 1e5, 1 / 12.0, 4 * std::sqrt(1 / 180.0 / 1e5));
}

TEST(SpreadRounded, LeavesZerosAndOtherValues) {
  const std::vector<float> given{0.0f, -0.0f, 0.1f, 1.0f, -2.5f};
  at::Tensor values = filled({5}, 0);
  std::ranges::copy(given, floats(values).begin());
  spread_rounded(values, 1);
  EXPECT_EQ(std::bit_cast<uint32_t>(floats(values)[0]), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(floats(values)[1]), 0x80000000u);
  EXPECT_EQ(floats(values)[2], 0.1f);
  EXPECT_NE(floats(values)[3], 1.0f);
  EXPECT_NEAR(floats(values)[3], 1.0, 1.0 / 256);
  EXPECT_NEAR(floats(values)[4], -2.5, 2.0 / 256);
}

TEST(SpreadRounded, IsAFunctionOfKeyAndPlace) {
  at::Tensor a = filled({20}, 1.5f), b = filled({30}, 1.5f), c = filled({20}, 1.5f);
  spread_rounded(a, 3), spread_rounded(b, 3), spread_rounded(c, 4);
  EXPECT_TRUE(same_bits(floats(a), floats(b).first(20)));
  EXPECT_FALSE(same_bits(floats(a), floats(c)));
}

}  // namespace
}  // namespace tandem::kernels
