#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Metrics, KeepsTheOrderOfFirstSetting) {
  Metrics metrics;
  metrics.set("b", 1);
  metrics.set("a", 2);
  metrics.set("b", 3);
  EXPECT_EQ(to_json(metrics), R"({"b":3,"a":2})");
  EXPECT_EQ(metrics.get("b"), 3.0);
  EXPECT_FALSE(metrics.get("c").has_value());
}

TEST(Metrics, MergeOverwritesAndAppends) {
  Metrics left, right;
  left.set("a", 1);
  left.set("b", 2);
  right.set("c", 3);
  right.set("a", 4);
  left.merge(right);
  EXPECT_EQ(to_json(left), R"({"a":4,"b":2,"c":3})");
}

TEST(Metrics, JsonNumbersAreTheShortestThatReadBack) {
  Metrics metrics;
  metrics.set("x", 0.1);
  metrics.set("lr", 1e-6);
  metrics.set("third", 1.0 / 3.0);
  metrics.set("minus", -2.5);
  EXPECT_EQ(to_json(7, metrics), R"({"step":7,"x":0.1,"lr":1e-06,"third":0.3333333333333333,"minus":-2.5})");
}

TEST(Metrics, NonFiniteNumbersAreStrings) {
  Metrics metrics;
  metrics.set("a", kNan);
  metrics.set("b", kInfinity);
  metrics.set("c", -kInfinity);
  EXPECT_EQ(to_json(metrics), R"({"a":"NaN","b":"Infinity","c":"-Infinity"})");
}

TEST(Metrics, EmptyAndReservedNames) {
  Metrics metrics;
  EXPECT_EQ(to_json(metrics), "{}");
  EXPECT_EQ(to_json(0, metrics), R"({"step":0})");
  metrics.set("step", 1);
  EXPECT_THROW(to_json(0, metrics), std::exception);
}

TEST(Summary, MeanMaxMin) {
  Metrics metrics;
  add_summary(metrics, "critic/score", std::vector<double>{1, -2, 4});
  EXPECT_EQ(to_json(metrics), R"({"critic/score/mean":1,"critic/score/max":4,"critic/score/min":-2})");
}

TEST(Summary, NothingFromNothing) {
  Metrics metrics;
  add_summary(metrics, "x", {});
  EXPECT_TRUE(metrics.empty());
}

TEST(Summary, NanDoesNotVanish) {
  for (const auto& values : {std::vector<double>{kNan, 1, 2}, {1, kNan, 2}, {1, 2, kNan}}) {
    const auto summary = summarize(values);
    EXPECT_TRUE(std::isnan(summary->mean) && std::isnan(summary->max) && std::isnan(summary->min));
  }
}

}  // namespace
}  // namespace tandem
