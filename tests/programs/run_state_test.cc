// A state copied in memory, or written and read, goes on bit for bit; a copy does not change while training goes on.
#include "programs/run_state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "programs/tiny_run.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The whole state as bytes: what a checkpoint of it holds.
std::string bytes_of(const StatefulRoles& roles) {
  const ScratchFolder folder;
  write_run_state(folder.path(), Progressed{}, roles);
  std::string all;
  for (const char* name : {"actor/huggingface/model.safetensors", "actor/optim.safetensors", "actor/extra_state.json",
                           "critic/huggingface/model.safetensors", "critic/optim.safetensors"})
    all += fs::exists(folder / name) ? read_file(folder / name) : "none";
  return all;
}

struct PpoRun : TinyRun {
  PpoRun() : TinyRun(with_kl(), learning(), TokenAdvantageOptions{TokenEstimator::kGae, 1, 0.95}, true) {}
  static ProgramOptions with_kl() {
    ProgramOptions options;
    options.kl = {.enable = true, .adaptive = true, .kl_coef = 0.01};
    return options;
  }
  static EngineOptions learning() {
    EngineOptions options;
    options.optimizer.lr = 3e-2;
    return options;
  }
  StatefulRoles roles() { return {actor->worker(0), &critic->worker(0)}; }
  Progressed progressed() {
    Progressed out;
    out.step = steps_done, out.kl_coefficient = program->kl_coefficient(), out.rollouts = buffer.rollouts();
    return out;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const StepResult result = step("AB");
      buffer.add(steps_done, result.batch.samples, *store);
      store->clear();
    }
  }
  RolloutBuffer buffer;
};

TEST(RunState, ACopyInMemoryGoesOnBitForBit) {
  PpoRun run;
  RunState at_start, at_two;
  copy_run_state(run.roles(), run.progressed(), at_start);
  run.steps(2);
  const uint64_t given = run.given;
  copy_run_state(run.roles(), run.progressed(), at_two);
  const std::string two = bytes_of(run.roles());
  EXPECT_EQ(at_two.progressed.step, 2);
  EXPECT_EQ(at_two.progressed.rollouts.size(), 2U);
  run.steps(2);
  const std::string four = bytes_of(run.roles());
  EXPECT_NE(four, two);
  for (int again = 0; again < 2; ++again) {  // the copy stays what it was
    restore_run_state(at_two, run.roles());
    EXPECT_EQ(bytes_of(run.roles()), two);
    run.program->restore(*at_two.progressed.kl_coefficient);
    run.steps_done = at_two.progressed.step, run.given = given;
    run.steps(2);
    EXPECT_EQ(bytes_of(run.roles()), four);
  }
  restore_run_state(at_start, run.roles());  // from before there was an optimizer
  run.program->restore(*at_start.progressed.kl_coefficient);
  run.steps_done = 0, run.given = 0;
  run.steps(2);
  EXPECT_EQ(bytes_of(run.roles()), two);
}

TEST(RunState, ACopyIsWrittenAsTheStateItWas) {
  PpoRun run;
  run.steps(2);
  RunState copy;
  copy_run_state(run.roles(), run.progressed(), copy);
  const ScratchFolder live, copied;
  write_run_state(live.path(), run.progressed(), run.roles());
  run.steps(1);
  WritePace pace;
  write_run_state(copied.path(), copy, run.roles(), &pace);
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(live.path())) {
    if (!entry.is_regular_file()) continue;
    const fs::path name = entry.path().lexically_relative(live.path());
    EXPECT_EQ(read_file(entry.path()), read_file(copied.path() / name)) << name;
    ++files;
  }
  EXPECT_GE(files, 9U);
  EXPECT_GT(pace.bytes(), fs::file_size(copied / "actor/optim.safetensors"));

  PpoRun other;
  const Progressed back = read_run_state(copied.path(), 2, other.roles());
  EXPECT_EQ(back.step, 2);
  EXPECT_EQ(back.kl_coefficient, copy.progressed.kl_coefficient);
  ASSERT_EQ(back.rollouts.size(), 2U);
  const RolloutSample& a = back.rollouts[1]->samples[3];
  const RolloutSample& b = copy.progressed.rollouts[1]->samples[3];
  EXPECT_EQ(back.rollouts[1]->step, 2);
  EXPECT_EQ(a.trajectory->response_ids, b.trajectory->response_ids);
  EXPECT_EQ(a.trajectory->rollout_logprobs, b.trajectory->rollout_logprobs);
  EXPECT_EQ(a.trajectory->prompt->token_ids, b.trajectory->prompt->token_ids);
  EXPECT_EQ(a.reward, b.reward);
  EXPECT_EQ(a.advantage, b.advantage);
  run.program->restore(0.01);
}

TEST(RunState, TheLastThreeRolloutsStay) {
  PpoRun run;
  run.steps(5);
  ASSERT_EQ(run.buffer.rollouts().size(), 3U);
  EXPECT_EQ(run.buffer.rollouts().front()->step, 3);
  const ScratchFolder folder;
  write_rollouts(folder / "rollouts.bin", run.buffer.rollouts());
  EXPECT_EQ(read_rollouts(folder / "rollouts.bin").size(), 3U);
  fs::resize_file(folder / "rollouts.bin", fs::file_size(folder / "rollouts.bin") - 1);
  expect_names(error_of<IoError>([&] { read_rollouts(folder / "rollouts.bin"); }), {"rollouts.bin", "incomplete"});
}

}  // namespace
}  // namespace tandem
