// A pipeline computes what one rank does, micro-batch by micro-batch: the same bits, but for a tied embedding, whose
// two uses are added up last.
#include "train/pipeline.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "parallel/communicator_local.h"
#include "train/random_policy.h"
#include "train/trainer.h"

namespace tandem {
namespace {

TrainerOptions trainer_options() {
  TrainerOptions options;
  options.mini_batch_samples = 12;
  options.max_micro_tokens = 70;
  return options;
}

OptimizerOptions optimizer_options() {
  OptimizerOptions options;
  options.lr = 1e-3, options.clip_grad = 0.05;
  return options;
}

class PipelineTest : public testing::TestWithParam<std::tuple<bool, std::pair<int, int>>> {};

TEST_P(PipelineTest, TrainsAsOneRankDoes) {
  const auto [qwen, shape] = GetParam();
  const auto [stages, chunks] = shape;
  ModelConfig config = random_model(qwen);
  config.num_hidden_layers = 7;  // stages and chunks of two sizes
  Decoder alone = random_decoder(config);
  Optimizer alone_optimizer(alone.weights(), optimizer_options());
  DecoderWeights gradient = zero_weights(config);
  Trainer reference(alone, alone_optimizer, trainer_options());
  reference.accumulate(random_samples(config, 0), gradient);
  UpdateStats expected;
  for (uint64_t step = 0; step < 2; ++step) expected = reference.update(random_samples(config, step));

  run_ranks(stages, [&, qwen = qwen, chunks = chunks](Communicator& world) {
    omp_set_num_threads(1);
    Decoder decoder = random_decoder(config);
    Pipeline pipeline(decoder, world.duplicate(), chunks);
    Optimizer optimizer(pipeline.stage().weights(), optimizer_options());
    Trainer trainer(pipeline.stage(), optimizer, trainer_options(), {.pipeline = &pipeline});
    pipeline.enter_training();
    DecoderWeights part =
        mapped(pipeline.stage().weights(), [](const at::Tensor& t) { return kernels::zeros(t.sizes()); });
    trainer.accumulate(random_samples(config, 0), part);
    const DecoderWeights found = pipeline.gathered(part);
    double norm = 0;
    const double difference = distance(found, gradient, norm);
    EXPECT_LE(difference, qwen ? 1e-6 * norm : 0) << world.rank();
    UpdateStats stats;
    for (uint64_t step = 0; step < 2; ++step) {
      pipeline.enter_training();
      stats = trainer.update(random_samples(config, step));
      pipeline.enter_rollout();
    }
    EXPECT_NEAR(stats.loss, expected.loss, 1e-9 + 1e-4 * std::abs(expected.loss));
    EXPECT_NEAR(stats.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
    if (qwen) return;  // Adam's first steps make much of a rounding
    EXPECT_EQ(distance(decoder.weights(), alone.weights(), norm), 0) << world.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, PipelineTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(std::pair(2, 1), std::pair(4, 1), std::pair(2, 2),
                                                          std::pair(2, 3), std::pair(3, 2))),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "qwen3_pp" : "llama_pp") +
                                  std::to_string(std::get<1>(info.param).first) + "_of_" +
                                  std::to_string(std::get<1>(info.param).second);
                         });

TEST(Pipeline, RefusesMoreStagesThanBlocks) {
  const ModelConfig config = random_model(true);
  EXPECT_THROW(run_ranks(4,
                         [&](Communicator& world) {
                           Decoder decoder = random_decoder(config);
                           Pipeline pipeline(decoder, world.duplicate());
                         }),
               ConfigError);
}

}  // namespace
}  // namespace tandem
