// A dumped mini-batch comes back with every bit, and with the weights that met it.
#include "engine/update_dump.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "engine/engine.h"

namespace tandem {
namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

TrainingSample sample_of(uint64_t prompt_id) {
  auto prompt = std::make_shared<Prompt>();
  prompt->id = prompt_id, prompt->token_ids = {3, 1, 4};
  auto t = std::make_shared<Trajectory>();
  t->prompt = prompt;
  t->sample_index = 2, t->policy_version = 9, t->temperature = 0.1 + 0.2;
  t->response_ids = {5, 6}, t->rollout_logprobs = {-0.5F, std::nanf("7")};
  t->stop_reason = StopReason::kEndOfText;
  TrainingSample sample;
  sample.trajectory = t;
  sample.advantage = 1e200;
  sample.ref_logprobs = {-1.F, -std::numeric_limits<float>::infinity()};
  sample.advantages = {1.0 / 3, -1e-300};
  sample.mask = {1, 0};
  return sample;
}

TEST(UpdateDump, ComesBackBitForBit) {
  const std::filesystem::path model = std::filesystem::path(TANDEM_TEST_DATA) / "models" / "qwen3_tied";
  const auto decoder = load_decoder(model, 64);
  const ScratchFolder folder;
  const std::vector<TrainingSample> samples = {sample_of(17), sample_of(18)};
  const NonFiniteUpdate update{samples, std::nan(""), std::numeric_limits<double>::infinity(), 40, true};
  for (int again = 0; again < 2; ++again) write_dump(folder / "dump", "actor", 5, update, *decoder, model);
  const UpdateDump dump = read_dump(folder / "dump");
  EXPECT_EQ(dump.role, "actor");
  EXPECT_EQ(dump.step, 5);
  EXPECT_TRUE(std::isnan(dump.loss));
  EXPECT_TRUE(std::isinf(dump.grad_norm));
  EXPECT_EQ(dump.optimizer_steps, 40);
  EXPECT_TRUE(dump.unchanged);
  ASSERT_EQ(dump.samples.size(), 2U);
  const TrainingSample& a = dump.samples[1];
  const TrainingSample& b = samples[1];
  EXPECT_EQ(a.trajectory->prompt->id, 18U);
  EXPECT_EQ(a.trajectory->prompt->token_ids, b.trajectory->prompt->token_ids);
  EXPECT_EQ(a.trajectory->policy_version, 9U);
  EXPECT_EQ(a.trajectory->temperature, b.trajectory->temperature);
  EXPECT_EQ(a.trajectory->response_ids, b.trajectory->response_ids);
  EXPECT_TRUE(same_bits(a.trajectory->rollout_logprobs, b.trajectory->rollout_logprobs));
  EXPECT_EQ(a.trajectory->stop_reason, StopReason::kEndOfText);
  EXPECT_EQ(a.advantage, 1e200);
  EXPECT_TRUE(same_bits(a.ref_logprobs, b.ref_logprobs));
  EXPECT_TRUE(same_bits(a.advantages, b.advantages));
  EXPECT_EQ(a.mask, b.mask);
  EXPECT_TRUE(a.old_logprobs.empty() && a.returns.empty());
  const auto again = load_decoder(folder / "dump" / "huggingface", 64);
  const auto x = parameters(decoder->weights()), y = parameters(again->weights());
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(0, std::memcmp(values(x[i].tensor).data(), values(y[i].tensor).data(), values(x[i].tensor).size_bytes()));
  expect_names(error_of<IoError>([&] { read_dump(folder.path()); }), {"dump.json", "dumps"});
}

}  // namespace
}  // namespace tandem
