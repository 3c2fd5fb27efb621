// CKPT-1: whatever a killed or failed save leaves, the newest complete checkpoint is found.
#include "checkpoint/manager.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "checkpoint/sharded_io.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void write_run(const fs::path& folder, const std::string& weights) {
  fs::create_directories(folder / "actor");
  put(folder / "actor" / "weights.bin", weights);
  put(folder / "data.json", "{}");
}

class Manager : public testing::Test {
 protected:
  Checkpoint save(int64_t step, int keep = 0) {
    return CheckpointManager(root_, keep).save(step, [&](const fs::path& folder) {
      write_run(folder, "weights of step " + std::to_string(step));
    });
  }
  int64_t latest(Verify verify = Verify::kSizes) {
    testing::internal::CaptureStderr();
    const auto found = CheckpointManager(root_).find_latest(verify);
    warnings_ = testing::internal::GetCapturedStderr();
    return found ? found->step : -1;
  }
  std::string error_opening(int64_t step) {
    return error_of<IoError>([&] { open_checkpoint(folder(step)); });
  }
  std::vector<int64_t> steps() { return CheckpointManager(root_).complete_steps(); }
  fs::path folder(int64_t step) const { return root_ / ("global_step_" + std::to_string(step)); }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(root_), {})); }

  ScratchFolder scratch_;
  fs::path root_ = scratch_ / "run";
  std::string warnings_;
};

TEST_F(Manager, NothingSavedYet) {
  EXPECT_EQ(latest(), -1);
  EXPECT_EQ(warnings_, "");
}

TEST_F(Manager, SavesInVerlsLayout) {
  const auto saved = save(2);
  EXPECT_EQ(saved.folder, folder(2));
  EXPECT_EQ(save(4).step, 4);
  EXPECT_EQ(read_file(root_ / "latest_checkpointed_iteration.txt"), "4");
  EXPECT_EQ(read_file(folder(4) / "actor/weights.bin"), "weights of step 4");
  EXPECT_EQ(latest(Verify::kContent), 4);
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(open_checkpoint(folder(2)).step, 2);
  EXPECT_EQ(entries(), 3u);
}

TEST_F(Manager, SkipsAFolderWithoutManifest) {  // CKPT-1 (i)
  save(2), save(4);
  write_run(folder(6), "half");
  EXPECT_EQ(latest(), 4);
  expect_names(warnings_, {"global_step_6", "manifest.json"});
  expect_names(error_opening(6), {"global_step_6", "incomplete"});
  save(6);  // replaces it
  EXPECT_EQ(latest(Verify::kContent), 6);
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(entries(), 4u);
}

TEST_F(Manager, SkipsTruncatedWeights) {  // CKPT-1 (ii)
  save(4), save(6);
  fs::resize_file(folder(6) / "actor/weights.bin", 3);
  EXPECT_EQ(latest(), 4);
  expect_names(warnings_, {"global_step_6", "actor/weights.bin has 3 bytes, not 17"});
  expect_names(error_opening(6), {"global_step_6", "3 bytes"});
}

TEST_F(Manager, SkipsAnEmptyFolder) {  // CKPT-1 (iii)
  save(4);
  fs::create_directory(folder(6));
  EXPECT_EQ(latest(), 4);
  expect_names(warnings_, {"global_step_6"});
  expect_names(error_opening(6), {"global_step_6"});
}

TEST_F(Manager, SkipsAPointerToNothing) {  // CKPT-1 (iv)
  save(4);
  put(root_ / "latest_checkpointed_iteration.txt", "6\n");
  EXPECT_EQ(latest(), 4);
  expect_names(warnings_, {"global_step_6", "absent"});
  expect_names(error_opening(6), {"global_step_6"});
}

TEST_F(Manager, AFlippedBitIsFoundByContent) {
  save(4), save(6);
  put(folder(6) / "actor/weights.bin", "weights of step 7");
  EXPECT_EQ(latest(Verify::kContent), 4);
  expect_names(warnings_, {"global_step_6", "checksum"});
  expect_names(error_opening(6), {"actor/weights.bin", "checksum"});
}

TEST_F(Manager, AMissingFileOrABrokenManifestIsFound) {
  save(4), save(6);
  fs::remove(folder(6) / "data.json");
  EXPECT_EQ(latest(), 4);
  expect_names(warnings_, {"data.json is missing"});
  for (
      const char* text :
      {"", "{}", "[]", R"({"format":1,"step":6,"sequence":2,"files":[{"path":"../x"}]})",
       R"({"format":1,"step":6,"sequence":2,"files":[{"path":"../global_step_4/data.json","size":2,"xxh64":"0000000000000000"}]})"}) {
    put(folder(6) / "manifest.json", text);
    EXPECT_EQ(latest(), 4) << text;
    expect_names(warnings_, {"global_step_6"});
  }
}

TEST_F(Manager, ARenamedFolderIsNotAnotherStep) {
  save(4);
  fs::rename(folder(4), folder(8));
  EXPECT_EQ(latest(), -1);
  expect_names(warnings_, {"global_step_8", "saved as step 4"});
}

TEST_F(Manager, KeepsTheLastSaved) {
  for (const int64_t step : {2, 4, 6, 8}) save(step, 2);
  EXPECT_EQ(steps(), (std::vector<int64_t>{6, 8}));
  EXPECT_EQ(entries(), 3u);
}

TEST_F(Manager, OldOnesStayUntilTheNewOneIsComplete) {
  save(4, 1);
  CheckpointManager manager(root_, 1);
  manager.save(6, [&](const fs::path& made) {
    write_run(made, "new");
    EXPECT_EQ(open_checkpoint(folder(4)).step, 4);
    EXPECT_FALSE(fs::exists(folder(6)));
  });
  EXPECT_EQ(steps(), std::vector<int64_t>{6});
}

// Resumed from 4 although 6 and 8 are there: what is saved then is newer than 8.
TEST_F(Manager, NewestIsWhatWasSavedLast) {
  for (const int64_t step : {4, 6, 8}) save(step);
  save(6);
  EXPECT_EQ(latest(), 6);
  save(7, 2);
  EXPECT_EQ(steps(), (std::vector<int64_t>{6, 7}));
}

TEST_F(Manager, AFailedSaveLeavesEverythingAsItWas) {
  save(4, 1), save(6, 1);
  CheckpointManager manager(root_, 1);
  const auto error = error_of<IoError>([&] {
    manager.save(6, [](const fs::path& made) {
      write_run(made, "half");
      throw IoError("no space");
    });
  });
  EXPECT_EQ(error, "no space");
  EXPECT_EQ(read_file(folder(6) / "actor/weights.bin"), "weights of step 6");
  EXPECT_EQ(latest(Verify::kContent), 6);
  EXPECT_EQ(entries(), 2u);
}

TEST_F(Manager, AFullDiskIsAnErrorAndHarmless) {  // CKPT-1 (vi); a limit on file sizes stands for the disk
  save(4);
  const std::vector<float> values(100'000, 1.0f);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{65536, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto error = error_of<IoError>([&] {
    CheckpointManager(root_).save(6, [&](const fs::path& made) {
      write_safetensors(made / "w.safetensors", std::vector{view_of("w", values, {100'000})});
    });
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  expect_names(error, {"cannot write", "w.safetensors"});
  EXPECT_EQ(latest(Verify::kContent), 4);
  EXPECT_EQ(entries(), 2u);
}

TEST_F(Manager, LinksAreRefused) {
  const auto error = error_of<IoError>([&] {
    CheckpointManager(root_).save(2, [](const fs::path& made) { fs::create_symlink("/etc/hostname", made / "link"); });
  });
  expect_names(error, {"link"});
}

// CKPT-1 (v): killed at twenty moments of a save that replaces, publishes and deletes.
TEST_F(Manager, AKilledSaveNeverLosesTheNewest) {
  const std::string big(400'000, 'w');
  int64_t done = 2;
  save(done, 1);
  for (int trial = 0; trial < 20; ++trial) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int64_t step = done;; ++step)
        CheckpointManager(root_, 1).save(step, [&](const fs::path& made) { write_run(made, big); });
    }
    ::usleep(static_cast<useconds_t>(1000 + 1700 * trial));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const int64_t found = latest(Verify::kContent);
    ASSERT_GE(found, done);
    ASSERT_EQ(warnings_, "");
    done = found;
  }
  save(done + 1, 1);
  std::string names;
  for (const auto& entry : fs::directory_iterator(root_)) names += entry.path().filename().string() + " ";
  EXPECT_EQ(entries(), 2u) << names;  // the one kept and the pointer; no leftovers
}

TEST(Manifest, SaysWhereEachTensorLies) {
  const ScratchFolder root;
  CheckpointManager manager(root.path());
  const std::vector<float> values(6, 1);
  const Checkpoint saved = manager.save(3, [&](const fs::path& made) {
    write_safetensors(made / "whole.safetensors", std::vector{view_of("v", values, {6})});
    write_slices(made / "rank_1.safetensors", {{"w", DType::kF32, {4, 3}, {2, 0}, {2, 3}}},
                 [&](size_t) { return std::as_bytes(std::span(values)); });
  });
  const std::string text = read_file(saved.folder / "manifest.json");
  const auto manifest = nlohmann::json::parse(text);
  const auto slice = nlohmann::json::parse(
      R"({"name": "w", "dtype": "F32", "global_shape": [4, 3], "start": [2, 0], "shape": [2, 3]})");
  const auto whole =
      nlohmann::json::parse(R"({"name": "v", "dtype": "F32", "global_shape": [6], "start": [0], "shape": [6]})");
  EXPECT_EQ(manifest["files"][0]["tensors"], nlohmann::json::array({slice}));
  EXPECT_EQ(manifest["files"][1]["tensors"], nlohmann::json::array({whole}));
  EXPECT_EQ(manager.find_latest(Verify::kContent)->step, 3);
}

}  // namespace
}  // namespace tandem
