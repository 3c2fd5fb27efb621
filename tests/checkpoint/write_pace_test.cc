#include "checkpoint/write_pace.h"

#include <gtest/gtest.h>

#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

double seconds_for(WritePace& pace, int pieces, uint64_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < pieces; ++i) pace.before_writing(bytes);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(WritePace, HoldsItsBound) {
  WritePace pace(10e6);
  const double took = seconds_for(pace, 11, 100'000);  // the first is free, ten more at 10 MB/s
  EXPECT_GE(took, 0.099);
  EXPECT_LT(took, 1);
  EXPECT_EQ(pace.bytes(), 1'100'000U);
  WritePace free;
  EXPECT_LT(seconds_for(free, 1000, 1'000'000'000), 0.1);
}

TEST(WritePace, BoundsAndCountsATensorFile) {
  const ScratchFolder folder;
  const std::vector<float> values(1'000'000, 1);
  WritePace pace(20e6);
  const auto begin = std::chrono::steady_clock::now();
  for (const char* name : {"a", "b", "c"})
    write_safetensors(
        folder / name, {{"x", DType::kF32, {1'000'000}}},
        [&](const TensorSpec&) { return std::as_bytes(std::span(values)); }, {}, &pace);
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 0.39);  // 8 MB of 12
  EXPECT_NEAR(static_cast<double>(pace.bytes()), 12e6, 1e3);
  EXPECT_EQ(SafetensorsFile(folder / "c").find("x")->bytes.size(), 4'000'000U);
}

}  // namespace
}  // namespace tandem
