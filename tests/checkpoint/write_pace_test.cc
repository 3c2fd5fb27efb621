#include "checkpoint/write_pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "checkpoint/shard_writes.h"
#include "checkpoint/sharded_io.h"

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

// Writers side by side share the bound, whichever of them is ahead.
TEST(WritePace, BoundsSeveralWritersTogether) {
  const ScratchFolder folder;
  const std::vector<float> values(500'000, 1);
  WritePace pace(20e6);
  std::vector<std::function<void()>> writes;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
    writes.emplace_back([&, name] {
      write_safetensors(
          folder / name, {{"x", DType::kF32, {500'000}}},
          [&](const TensorSpec&) { return std::as_bytes(std::span(values)); }, {}, &pace);
    });
  std::atomic<bool> over = false;
  uint64_t most = 0;  // bytes within a tenth of a second
  std::thread watch([&] {
    while (!over) {
      const uint64_t before = pace.bytes();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      most = std::max(most, pace.bytes() - before);
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  run_side_by_side(writes);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  over = true;
  watch.join();
  EXPECT_GE(seconds, 0.85);  // 20 MB, of which each writer's first piece need not wait
  EXPECT_GT(most, 1'000'000U);
  EXPECT_LT(most, 8'000'000U);  // without a bound all twenty
}

TEST(SideBySide, TellsTheFirstFailureWhenAllHaveEnded) {
  std::atomic<int> ended = 0;
  std::vector<std::function<void()>> writes;
  for (int i = 0; i < 20; ++i)
    writes.emplace_back([&, i] {
      ++ended;
      if (i == 7 || i == 11) throw IoError("write " + std::to_string(i));
    });
  expect_names(error_of<IoError>([&] { run_side_by_side(writes); }), {"write 7"});
  EXPECT_EQ(ended, 20);
}

TEST(WeightShards, AreAFolderThatReadsAsOne) {
  const ScratchFolder folder;
  std::map<std::string, std::vector<float>> tensors;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 9; ++i) {
    const std::string name = "t" + std::to_string(i);
    tensors[name].assign(100 + 10 * static_cast<size_t>(i), static_cast<float>(i));
    specs.push_back({name, DType::kF32, {static_cast<int64_t>(tensors[name].size())}});
  }
  run_side_by_side(weight_shard_writes(
      folder.path(), specs, [&](const TensorSpec& spec) { return std::as_bytes(std::span(tensors.at(spec.name))); }, 4,
      nullptr));
  EXPECT_GE(weight_files(folder.path()).size(), 4U);
  const WeightFolder weights(folder.path());
  ASSERT_EQ(weights.names().size(), 9U);
  for (const auto& [name, values] : tensors) {
    const TensorView view = weights.get(name);
    ASSERT_EQ(view.bytes.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(view.bytes.data(), values.data(), view.bytes.size()), 0) << name;
  }
}

}  // namespace
}  // namespace tandem
