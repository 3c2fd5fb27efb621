#include "planner/device_peak.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(DevicePeak, ByWholeWordsOfTheName) {
  EXPECT_EQ(known_peak_tflops("NVIDIA H200"), 989);
  EXPECT_EQ(known_peak_tflops("NVIDIA H100 80GB HBM3"), 989);
  EXPECT_EQ(known_peak_tflops("NVIDIA H100 PCIe"), 756);
  EXPECT_EQ(known_peak_tflops("NVIDIA A100-SXM4-80GB"), 312);
  EXPECT_EQ(known_peak_tflops("NVIDIA H20"), 148);
  EXPECT_EQ(known_peak_tflops("NVIDIA L40S"), 362);
  EXPECT_FALSE(known_peak_tflops("NVIDIA RTX A4000"));
  EXPECT_FALSE(known_peak_tflops(""));
}

}  // namespace
}  // namespace tandem
