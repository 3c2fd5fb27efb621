// The virtual split: whatever the number of tensor-parallel ranks, one included, a forward pass has the same bits, and
// a backward pass the same gradient but for the order of sums.
#include "model/tensor_split.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/rng.h"
#include "model/decoder.h"
#include "parallel/communicator_local.h"

namespace tandem {
namespace {

ModelConfig tiny(bool qwen, bool biases = false) {
  ModelConfig c;
  c.architecture = qwen ? Architecture::kQwen3 : Architecture::kLlama;
  c.qk_norm = qwen, c.tie_word_embeddings = qwen;
  c.qkv_bias = c.o_bias = c.mlp_bias = biases;
  c.vocab_size = 139, c.hidden_size = 48, c.intermediate_size = 100, c.num_hidden_layers = 2;
  c.num_attention_heads = 8, c.num_key_value_heads = 4, c.head_dim = 16;
  c.max_position_embeddings = 128;
  return c;
}

DecoderWeights weights_of(const ModelConfig& config) {
  DecoderWeights weights = empty_weights(config);
  init_random(weights, 5);
  Philox random(6);
  for (auto& [name, tensor] : parameters(weights))  // biases and norms that matter
    if (tensor.dim() == 1)
      for (float& value : values(tensor)) value += 0.3f * static_cast<float>(random.normal());
  return weights;
}

// Two sequences, packed.
TokenBatch batch_of(int64_t vocab) {
  TokenBatch batch;
  Philox random(9);
  int32_t block = 0;
  for (const int32_t length : {21, 34}) {
    const auto first = static_cast<int32_t>(batch.ids.size());
    batch.attention.spans.push_back({first, length, 0, static_cast<int32_t>(batch.attention.block_tables.size()), -1});
    for (int32_t p = 0; p < length; ++p) {
      if (p % kernels::kKvBlock == 0) batch.attention.block_tables.push_back(block++);
      batch.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
      batch.positions.push_back(p);
      batch.writes.push_back(
          {first + p, static_cast<int32_t>((block - 1) * kernels::kKvBlock + p % kernels::kKvBlock)});
    }
  }
  batch.num_blocks = block;
  return batch;
}

struct Pass {
  std::vector<float> logits;
  DecoderWeights gradients;  // whole
};

std::vector<float> copy_of(const at::Tensor& tensor) { return {values(tensor).begin(), values(tensor).end()}; }

// Forward, and backward from a made-up gradient of the logits.
Pass run_pass(const Decoder& decoder, bool keep_all) {
  const TokenBatch batch = batch_of(decoder.config().vocab_size);
  Activations kept = decoder.forward_for_training(batch, keep_all);
  const at::Tensor x = kept.x_TE, normed = decoder.final_norm(x);
  at::Tensor logits = kernels::empty({batch.num_tokens(), decoder.config().vocab_size});
  decoder.logits(normed, logits);
  Pass pass{copy_of(logits), mapped(decoder.weights(), [](const at::Tensor& t) { return kernels::zeros(t.sizes()); })};
  Philox random(10);
  for (float& value : values(logits)) value = static_cast<float>(random.normal());
  at::Tensor dnormed = kernels::empty(normed.sizes()), dx = kernels::zeros(x.sizes());
  decoder.logits_backward(decoder.split() != nullptr ? decoder.split()->own_vocabulary(logits) : logits, normed,
                          dnormed, pass.gradients);
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < batch.num_tokens(); ++i) rows.push_back(i);
  decoder.final_norm_backward(dnormed, x, rows, dx, pass.gradients);
  decoder.backward(batch, std::move(kept), dx, pass.gradients);
  return pass;
}

double distance(const DecoderWeights& a, const DecoderWeights& b, double& norm) {
  double difference = 0;
  norm = 0;
  const auto x = parameters(a), y = parameters(b);
  for (size_t p = 0; p < x.size(); ++p)
    for (size_t i = 0; i < values(x[p].tensor).size(); ++i) {
      difference += std::pow(values(x[p].tensor)[i] - values(y[p].tensor)[i], 2);
      norm += std::pow(values(y[p].tensor)[i], 2);
    }
  norm = std::sqrt(norm);
  return std::sqrt(difference);
}

class TensorSplitTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(TensorSplitTest, AnyNumberOfRanksGivesTheSameBits) {
  const auto [qwen, biases] = GetParam();
  const ModelConfig config = tiny(qwen, biases);
  const DecoderWeights whole = weights_of(config);
  TensorSplit alone(config, nullptr);
  Decoder one(config, whole, 128);
  const Pass unsplit = run_pass(one, true);
  one.split_by(&alone);
  const Pass expected = run_pass(one, true);
  EXPECT_NE(unsplit.logits, expected.logits) << "the pieces change nothing: the test can see nothing";
  for (size_t i = 0; i < expected.logits.size(); ++i) ASSERT_NEAR(unsplit.logits[i], expected.logits[i], 2e-5);

  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](Communicator& world) {
      omp_set_num_threads(1);
      TensorSplit split(config, world.duplicate());
      Decoder decoder(split.local_config(), split.part_of(whole), 128);
      decoder.split_by(&split);
      Pass pass = run_pass(decoder, ranks % 2 == 0);
      EXPECT_TRUE(std::memcmp(pass.logits.data(), expected.logits.data(), pass.logits.size() * sizeof(float)) == 0)
          << ranks << " ranks";
      split.finish_gradients(pass.gradients);
      std::vector<double> squares;
      for (const NamedTensor& gradient : parameters(pass.gradients))
        squares.push_back(kernels::sum_of_squares({&gradient.tensor, 1}));
      const double found = split.total(squares);
      double norm = 0;
      const DecoderWeights gradients = split.gathered(pass.gradients);
      const double difference = distance(gradients, expected.gradients, norm);
      EXPECT_LE(difference, 1e-5 * norm) << ranks << " ranks";
      EXPECT_NEAR(std::sqrt(found), norm, 1e-5 * norm);
      // Parts make up the whole again.
      const auto again = parameters(split.gathered(decoder.weights())), given = parameters(whole);
      for (size_t p = 0; p < given.size(); ++p)
        EXPECT_EQ(copy_of(again[p].tensor), copy_of(given[p].tensor)) << given[p].name;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorSplitTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "qwen3" : "llama") +
                                  (std::get<1>(info.param) ? "_biases" : "");
                         });

TEST(TensorSplit, RefusesMoreRanksThanKeyHeads) {
  EXPECT_THROW(run_ranks(5, [](Communicator& world) { TensorSplit(tiny(true), world.duplicate()); }), ConfigError);
}

}  // namespace
}  // namespace tandem
