#include "planner/memory_estimate.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr int64_t kMiB = 1 << 20;

// SmolLM2-135M's shape.
ModelShape smol() {
  ModelShape m;
  m.layers = 30, m.hidden = 576, m.intermediate = 1536, m.vocab = 49152, m.heads = 9, m.kv_heads = 3, m.head_dim = 64;
  m.tied_head = true, m.parameters = 134'515'008;
  return m;
}

WorkloadSizes quickstart() {
  WorkloadSizes w;
  w.prompts = 8, w.samples_per_prompt = 8, w.prompt_length = 96, w.response_length = 4;
  w.mini_batch_samples = 64, w.micro_batch_tokens = 4096, w.rollout_pass_tokens = 8192, w.rollout_seqs = 256;
  w.kv_cache_bytes = int64_t{1} << 30;
  return w;
}

int64_t phase(const MemoryEstimate& e, const std::string& name) {
  for (const PhasePeak& p : e.phases)
    if (p.phase == name) return p.bytes;
  return 0;
}

TEST(MemoryEstimate, OneRankOnTheCpu) {
  const MemoryEstimate e = estimate_memory({{"actor", smol(), 0, true, true, {}}}, quickstart(), {}, 1);
  const RoleMemory& actor = e.roles.front();
  EXPECT_EQ(actor.weights, 4 * 134'515'008LL);
  EXPECT_EQ(actor.masters_and_moments, 8 * 134'515'008LL);
  EXPECT_EQ(actor.gradients, 4 * 134'515'008LL);
  // 8 prompts of 96 / 16 + 1 blocks and 8 responses of 2 blocks each; a block is 16 · 2 · 30 · 192 floats.
  EXPECT_EQ(actor.kv_cache, 8 * (7 + 8 * 2) * 16 * 2 * 30 * 192 * 4LL);
  EXPECT_EQ(e.peak, phase(e, "update"));
  EXPECT_EQ(e.host_peak, e.peak);
  // Activations: at most 363 tokens a pass (256 MiB), each 30 · 6153 floats; the scratch and the logits beside them.
  EXPECT_GT(actor.activations, 255 * kMiB);
  EXPECT_LT(actor.activations, 400 * kMiB);
}

TEST(MemoryEstimate, ACopyOfTheStateIsPaidForWhereUpdatesFollow) {
  WorkloadSizes w = quickstart();
  const auto peak = [&] { return estimate_memory({{"actor", smol(), 0, true, true, {}}}, w, {}, 1); };
  const int64_t without = peak().peak;
  w.copies_state = true;
  EXPECT_EQ(phase(peak(), "update"), without);
  EXPECT_EQ(phase(peak(), "save"), peak().libraries + (12 + 12) * 134'515'008LL);
  w.copies_before_end = true;
  EXPECT_EQ(phase(peak(), "update"), without + 12 * 134'515'008LL);
}

TEST(MemoryEstimate, AdaptersTrainLittle) {
  const MemoryEstimate e = estimate_memory({{"actor", smol(), 1'000'000, true, true, {}}}, quickstart(), {}, 1);
  EXPECT_EQ(e.roles.front().weights, 4 * 134'515'008LL);
  EXPECT_EQ(e.roles.front().masters_and_moments, 8'000'000);
  EXPECT_EQ(e.roles.front().gradients, 4'000'000);
}

TEST(MemoryEstimate, AReferenceKeepsItsWeights) {
  const MemoryEstimate alone = estimate_memory({{"actor", smol(), 0, true, true, {}}}, quickstart(), {}, 1);
  const MemoryEstimate both = estimate_memory(
      {{"actor", smol(), 0, true, true, {}}, {"reference", smol(), 0, false, false, {}}}, quickstart(), {}, 1);
  EXPECT_EQ(phase(both, "update") - phase(alone, "update"), 4 * 134'515'008LL);
}

TEST(MemoryEstimate, RanksShareTheStateAndTheHostHoldsAll) {
  const RoleSizes two{"actor", smol(), 0, true, true, {.dp_shard = 2}};
  WorkloadSizes w = quickstart();
  const MemoryEstimate e = estimate_memory({two}, w, {}, 2);
  EXPECT_EQ(e.roles.front().masters_and_moments, 4 * 134'515'008LL);
  EXPECT_EQ(e.host_peak, 2 * e.peak);
  w.copies_state = w.copies_before_end = true;
  const MemoryEstimate copied = estimate_memory({two}, w, {}, 2);
  EXPECT_EQ(copied.host_peak - e.host_peak, copied.peak - e.peak);  // the first process alone
}

TEST(MemoryEstimate, OnAGpuTheRestIsShared) {
  const DeviceKind gpu{true, int64_t{40} << 30, 0.5};
  const MemoryEstimate e = estimate_memory({{"actor", smol(), 0, true, true, {}}}, quickstart(), gpu, 1);
  const int64_t p = 134'515'008, workspace = int64_t{5} << 30, budget = int64_t{20} << 30;
  EXPECT_EQ(e.roles.front().weights, 2 * p);
  EXPECT_EQ(e.roles.front().masters_and_moments, 12 * p);
  EXPECT_EQ(e.roles.front().kv_cache, budget - workspace - 14 * p);
  EXPECT_EQ(e.roles.front().activations, budget - workspace - 18 * p);
  EXPECT_EQ(e.peak, workspace + 18 * p + 256 * kMiB);
}

}  // namespace
}  // namespace tandem
