#include "planner/cost_model.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "planner/calibration.h"
#include "planner/plan.h"
#include "planner/simulate.h"

namespace tandem {
namespace {

// 2 blocks of 8 · (8 + 2 · 4) + 8 · 8 + 3 · 8 · 16 = 576 parameters, a head of 100 · 8.
ModelShape small() {
  ModelShape m;
  m.layers = 2, m.hidden = 8, m.intermediate = 16, m.vocab = 100, m.heads = 2, m.kv_heads = 1, m.head_dim = 4;
  m.tied_head = true, m.parameters = 2 * 576 + 800;
  return m;
}

ClusterSpec cpu(int ranks, double cores, double threads) {
  ClusterSpec c;
  c.devices = ranks, c.per_node = ranks, c.cores = cores, c.threads = threads;
  c.device = device_named("cpu"), c.inside = c.between = network_named("loopback");
  return c;
}

Setting on_cpu(int ranks, double prompts = 16) {
  Setting s;
  s.model = small();
  s.cluster = cpu(ranks, 2, 2);
  s.work.prompts = prompts, s.work.samples_per_prompt = 4, s.work.prompt_tokens = 10;
  s.work.response_tokens = s.work.longest_response = 20;
  s.mapping.generation_devices = s.mapping.training_devices = ranks;
  s.mapping.training = {.dp_shard = ranks};
  return s;
}

double seconds(const PhaseParts& parts, Phase phase) { return sum(parts[static_cast<size_t>(phase)]); }

TEST(Shape, CountsParameters) {
  const ModelShape m = small();
  EXPECT_EQ(m.block_parameters(), 576);
  EXPECT_EQ(m.outside_parameters(), 800);
  EXPECT_EQ(m.kv_values_per_token(), 2 * 2 * 4);
  EXPECT_EQ(m.activations_per_token(), 2 * (2 * 8 + 2 * 8 + 4 * 4 + 2 + 2 * 16));
}

// trainer.num_threads is of all ranks together, each has one at least, and they share the machine's cores.
TEST(Cores, OfARankAreWhatIsLeftToIt) {
  EXPECT_EQ(cores_of_a_rank(cpu(1, 2, 2), 1), 2);
  EXPECT_EQ(cores_of_a_rank(cpu(2, 2, 2), 2), 1);
  EXPECT_EQ(cores_of_a_rank(cpu(4, 2, 2), 4), 0.5);
  EXPECT_EQ(cores_of_a_rank(cpu(8, 2, 2), 8), 0.25);
  EXPECT_EQ(cores_of_a_rank(cpu(2, 16, 4), 2), 2);
  EXPECT_EQ(cores_of_a_rank(cpu(1, 2, 1), 1), 1);
}

TEST(MicroBatches, SamplesAreNotCutAndShareTheirPrompt) {
  WorkloadSpec w;
  w.samples_per_prompt = 4, w.prompt_tokens = 10, w.response_tokens = 20, w.micro_batch_tokens = 50;
  // 10 + 20 + 20 = 50; then 10 + 20 + 20 for the other two of the prompt; and the same for the next prompt.
  const MicroBatches two = micro_batches(small(), w, 4, 8);
  EXPECT_EQ(two.count, 4);
  EXPECT_EQ(two.tokens, 200);
  w.micro_batch_tokens = 1000;
  const MicroBatches all = micro_batches(small(), w, 4, 8);
  EXPECT_EQ(all.count, 1);
  EXPECT_EQ(all.tokens, 2 * (10 + 4 * 20));
  w.activation_bytes = 4.0 * 164 * 50;  // as many as 50 tokens keep: but 64 fit always
  EXPECT_EQ(micro_batches(small(), w, 4, 4).count, 2);
}

TEST(Cost, ComputingIsSharedAndWeightsAreReadByEveryRank) {
  const Parts one = cost_of(on_cpu(1))[0], two = cost_of(on_cpu(2))[0], four = cost_of(on_cpu(4))[0];
  // Two cores in all cases, so the same products take the same time; each rank reads all weights on its part of them.
  EXPECT_NEAR(at(two, Part::kDecode), at(one, Part::kDecode), 1e-15);
  EXPECT_NEAR(at(four, Part::kDecode), at(one, Part::kDecode), 1e-15);
  EXPECT_NEAR(at(two, Part::kWeights), 2 * at(one, Part::kWeights), 1e-15);
  EXPECT_NEAR(at(four, Part::kWeights), 4 * at(one, Part::kWeights), 1e-15);
}

TEST(Cost, AShardedUpdateExchangesWhatItLacks) {
  EXPECT_EQ(at(cost_of(on_cpu(1))[2], Part::kExchange), 0);
  const Parts two = cost_of(on_cpu(2))[2];
  // One micro-batch: weights twice and gradients once, 4 bytes each, half of them from the other rank, on one core.
  EXPECT_NEAR(at(two, Part::kExchange), 12.0 * small().parameters / 2 / 1e9, 1e-15);
  const Parts four = cost_of(on_cpu(4))[2];
  EXPECT_NEAR(at(four, Part::kExchange), 12.0 * small().parameters * 3 / 4 / 1e9 * 2, 1e-15);  // half a core
}

TEST(Cost, ReshardingMovesWhatIsMissing) {
  Setting s = on_cpu(4);
  const auto bytes = [&](int generation_tp, Layout training) {
    s.mapping.generation_tp = generation_tp, s.mapping.training = training;
    return at(cost_of(s)[3], Part::kExchange) * 1e9 * 0.5 / (4.0 * small().parameters);  // in models
  };
  EXPECT_NEAR(bytes(1, {.dp_shard = 4}), 3.0 / 4, 1e-12);
  EXPECT_NEAR(bytes(2, {.tp = 4}), 1.0 / 4, 1e-12);
  EXPECT_NEAR(bytes(4, {.tp = 4}), 0, 1e-12);
  EXPECT_NEAR(bytes(4, {.dp_shard = 4}), 3.0 / 16, 1e-12);  // a quarter of its quarter is there
}

TEST(Cost, AGpuComputesBesideReading) {
  Setting s = on_cpu(1);
  s.cluster = {};
  s.cluster.device = device_named("h200");
  const Parts parts = cost_of(s)[0];
  EXPECT_EQ(at(parts, Part::kCache), 0);
  EXPECT_EQ(std::min(at(parts, Part::kWeights), at(parts, Part::kDecode)), 0);
  EXPECT_GT(at(parts, Part::kWeights) + at(parts, Part::kDecode), 0);
}

TEST(Calibrate, OneMeasurementScalesEverything) {
  const Setting s = on_cpu(1);
  const PhaseParts parts = cost_of(s);
  Measured m{s, {}, "a"};
  m.seconds[0] = 3 * seconds(parts, Phase::kGenerate);
  const Calibration c = calibrate(std::vector<Measured>{m});
  EXPECT_NEAR(c.seconds(parts, Phase::kGenerate), m.seconds[0], 1e-6 * m.seconds[0]);
  EXPECT_EQ(c.points[0], 1);
  EXPECT_EQ(c.points[2], 0);
  EXPECT_EQ(c.factors[2][0], 1);  // not measured: as assumed
}

// Times made of known factors on two parts are predicted where nothing was measured.
TEST(Calibrate, PartsAreToldApartByTwoNumbersOfRanks) {
  const auto truth = [](int ranks) {
    const Parts p = cost_of(on_cpu(ranks))[0];
    return 40 * at(p, Part::kWeights) + 7 * (sum(p) - at(p, Part::kWeights));
  };
  std::vector<Measured> measured;
  for (const int ranks : {1, 2}) {
    Measured m{on_cpu(ranks), {}, ""};
    m.seconds[0] = truth(ranks);
    measured.push_back(m);
  }
  const Calibration c = calibrate(measured);
  EXPECT_LT(c.worst_error[0], 0.01);
  for (const int ranks : {4, 8})
    EXPECT_NEAR(c.seconds(cost_of(on_cpu(ranks)), Phase::kGenerate) / truth(ranks), 1, 0.05);
  for (const double factor : c.factors[0]) EXPECT_GE(factor, 0);
}

Setting large(int devices) {
  Setting s;
  s.model = {36, 4096, 12288, 151936, 32, 8, 128, false, 8'190'000'000};
  s.cluster.devices = devices, s.cluster.per_node = 8;
  s.cluster.network = "ib", s.cluster.device = device_named("h200"), s.cluster.inside = inside_of("h200");
  s.cluster.between = network_named("ib");
  s.work.prompts = 512, s.work.samples_per_prompt = 8, s.work.prompt_tokens = 512, s.work.response_tokens = 2048;
  s.work.longest_response = 4096, s.work.reference = s.work.recompute = true;
  s.mapping = {devices, devices, false, 1, {.dp_shard = devices}, false};
  return s;
}

TEST(Simulate, MoreDevicesAreLessEfficientAndSlowerNetworksMoreSo) {
  const auto of = [](const std::string& network, int devices) {
    Setting s = large(64);
    s.cluster.between = network_named(network);
    return predict(scaled(s, devices), Calibration());
  };
  const Prediction base = of("ib", 64), more = of("ib", 256);
  const Efficiency e = efficiency(base, more);
  EXPECT_GT(e.step, 0.5);
  EXPECT_LE(e.step, 1 + 1e-9);
  EXPECT_GE(of("ib", 256).samples_per_s, of("roce", 256).samples_per_s);
  EXPECT_GE(of("roce", 256).samples_per_s, of("mixed", 256).samples_per_s);
  EXPECT_NEAR(scaled(large(64), 256).work.prompts, 2048, 1e-9);
  EXPECT_EQ(scaled(large(64), 256).mapping.training.world(), 256);
}

TEST(Simulate, NamesAreKnownOrRefused) {
  EXPECT_THROW(device_named("tpu"), ConfigError);
  EXPECT_THROW(network_named("token ring"), ConfigError);
}

TEST(Plan, WhatDoesNotFitIsLeftOut) {
  const Plan eight = plan_mapping(large(8), Calibration());
  ASSERT_FALSE(eight.fitting.empty());
  for (const Candidate& c : eight.fitting) {
    EXPECT_TRUE(c.refused.empty());
    EXPECT_EQ(c.mapping.training.world(), c.mapping.training_devices);
  }
  for (size_t i = 1; i < eight.fitting.size(); ++i)
    EXPECT_LE(eight.fitting[i - 1].prediction.step, eight.fitting[i].prediction.step);
  EXPECT_FALSE(eight.reasons.empty());
  // 8.19e9 · (2 + 12 + 4) bytes are 147 GB, more than one device has: without offload one does not do.
  for (const Candidate& c : plan_mapping(large(1), Calibration()).fitting) EXPECT_TRUE(c.mapping.offload);
  Setting tiny = large(1);
  tiny.cluster.device.memory = 8e9;
  EXPECT_TRUE(plan_mapping(tiny, Calibration()).fitting.empty());
}

TEST(Simulate, LengthsThatSpreadCostMoreWhereThereAreMoreOfThem) {
  Setting s = large(64);
  s.work.longest_response = 20000, s.work.length_spread = 0.3;
  const Prediction base = predict(s, Calibration()), more = predict(scaled(s, 256), Calibration());
  EXPECT_LT(efficiency(base, more).generate, 1);
  EXPECT_GT(efficiency(base, more).generate, 0.8);
}

TEST(Plan, SplitDevicesWorkBesideEachOtherOneStepBehind) {
  Setting s = large(8);
  s.mapping = {4, 4, true, 1, {.dp_shard = 4}, false};
  Prediction p = predict(s, Calibration());
  const double learning = p.seconds[1] + p.seconds[2];
  EXPECT_NEAR(p.step, p.seconds[0] + learning + p.seconds[3], 1e-9);
  s.work.one_step_behind = true;
  p = predict(s, Calibration());
  EXPECT_NEAR(p.step, std::max(p.seconds[0], learning) + p.seconds[3], 1e-9);
  EXPECT_GT(p.seconds[3], 0);
}

}  // namespace
}  // namespace tandem
