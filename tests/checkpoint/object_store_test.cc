// A folder stands for the object storage here; tests/e2e/object_store.py talks to a server of S3's protocol.
#include "checkpoint/object_store.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

Checkpoint saved(CheckpointManager& manager, int64_t step, const std::string& text) {
  return manager.save(step, [&](const fs::path& folder) {
    fs::create_directories(folder / "actor");
    put(folder / "actor" / "weights", text);
    put(folder / "data.json", "{}");
  });
}

TEST(ObjectStore, ACheckpointComesBackAsItWas) {
  const ScratchFolder here, there, elsewhere;
  CheckpointManager manager(here.path());
  ObjectStore store((there / "bucket/runs").string());
  put(here / "metrics.jsonl", "{}\n");
  WritePace pace;
  for (int64_t step : {5, 10, 20})
    store.upload(saved(manager, step, "w" + std::to_string(step)).folder, {here / "metrics.jsonl", here / "none"},
                 &pace);
  EXPECT_GT(pace.bytes(), 0U);
  EXPECT_TRUE(fs::exists(there / "bucket/runs/global_step_20/metrics.jsonl"));
  EXPECT_EQ(store.complete_steps(), (std::vector<int64_t>{5, 10, 20}));
  store.remove_all_but(2);
  EXPECT_EQ(store.complete_steps(), (std::vector<int64_t>{10, 20}));

  CheckpointManager other(elsewhere.path());
  const auto fetched = fetch_newest(store, other);
  ASSERT_TRUE(fetched.has_value());
  EXPECT_EQ(fetched->step, 20);
  EXPECT_EQ(read_file(fetched->folder / "actor/weights"), "w20");
  EXPECT_EQ(other.find_latest(Verify::kContent)->step, 20);
}

TEST(ObjectStore, WhatIsBrokenOrUnfinishedIsPassedOver) {
  const ScratchFolder here, there, elsewhere;
  CheckpointManager manager(here.path()), other(elsewhere.path());
  ObjectStore store(there.path().string());
  for (int64_t step : {1, 2, 3}) store.upload(saved(manager, step, "weights").folder, {}, nullptr);
  fs::remove(there / "global_step_3/manifest.json");  // an upload that was cut short
  put(there / "global_step_2/actor/weights", "wrights");
  const auto fetched = fetch_newest(store, other);
  ASSERT_TRUE(fetched.has_value());
  EXPECT_EQ(fetched->step, 1);
  EXPECT_EQ(other.complete_steps(), std::vector<int64_t>{1});  // no half of the others stays
  EXPECT_FALSE(fetch_newest(ObjectStore((there / "nothing").string()), other).has_value());
}

TEST(ObjectStore, SaysWhatCannotBeReached) {
  const ScratchFolder here;
  put(here / "file", "x");
  CheckpointManager manager(here / "checkpoints");
  ObjectStore store((here / "file").string());
  const Checkpoint checkpoint = saved(manager, 1, "w");
  expect_names(error_of<IoError>([&] { store.upload(checkpoint.folder, {}, nullptr); }), {"file"});
  expect_names(error_of<ConfigError>([] { ObjectStore("s3://"); }), {"remote_path", "s3://BUCKET/PREFIX"});
}

}  // namespace
}  // namespace tandem
