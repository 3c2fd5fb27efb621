#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/tensor_view.h"
#include "model/rope.h"

namespace tandem {
namespace {

void rope_tables(const ModelConfig& config, int64_t positions, at::Tensor& cos, at::Tensor& sin) {
  const auto frequencies = inverse_frequencies(config);
  const double factor = rope_attention_factor(config.rope);
  const int64_t half = config.head_dim / 2;
  cos = kernels::empty({positions, half});
  sin = kernels::empty({positions, half});
  float *c = kernels::f32(cos), *s = kernels::f32(sin);
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequencies[i];
      c[p * half + i] = static_cast<float>(std::cos(angle) * factor);
      s[p * half + i] = static_cast<float>(std::sin(angle) * factor);
    }
}

}  // namespace

Decoder::Decoder(ModelConfig config, DecoderWeights weights, int64_t max_positions)
    : config_(std::move(config)), weights_(std::move(weights)) {
  rope_tables(config_, max_positions, rope_cos_, rope_sin_);
}

at::Tensor Decoder::empty_kv(int64_t num_blocks) const {
  return kernels::empty({num_blocks, 2, config_.num_key_value_heads, config_.head_dim * kernels::kKvBlock});
}

std::vector<at::Tensor> Decoder::make_kv(int64_t num_blocks) const {
  std::vector<at::Tensor> kv;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) kv.push_back(empty_kv(num_blocks));
  return kv;
}

at::Tensor Decoder::forward(const TokenBatch& batch, std::span<at::Tensor> kv) const {
  at::Tensor x = kernels::empty({batch.num_tokens(), config_.hidden_size});
  kernels::embedding(batch.ids, weights_.embed_VE, x);
  for (size_t i = 0; i < weights_.layers.size(); ++i) block_forward(weights_.layers[i], batch, x, kv[i], nullptr);
  return x;
}

at::Tensor Decoder::forward_packed(const TokenBatch& batch) const {
  std::vector<at::Tensor> scratch(weights_.layers.size(), empty_kv(batch.num_blocks));
  return forward(batch, scratch);
}

Activations Decoder::forward_for_training(const TokenBatch& batch, bool keep_all) const {
  Activations saved;
  at::Tensor x = kernels::empty({batch.num_tokens(), config_.hidden_size});
  kernels::embedding(batch.ids, weights_.embed_VE, x);
  at::Tensor scratch = keep_all ? at::Tensor() : empty_kv(batch.num_blocks);
  for (const LayerWeights& layer : weights_.layers) {
    BlockActivations& block = saved.blocks.emplace_back();
    block.x_TE = x.clone();
    if (keep_all) block.kv = empty_kv(batch.num_blocks);
    block_forward(layer, batch, x, keep_all ? block.kv : scratch, keep_all ? &block : nullptr);
  }
  saved.x_TE = x;
  return saved;
}

void Decoder::backward(const TokenBatch& batch, Activations saved, at::Tensor dx, DecoderWeights& gradients) const {
  for (size_t i = weights_.layers.size(); i-- > 0;) {
    BlockActivations block = std::move(saved.blocks[i]);
    if (!block.complete()) {
      at::Tensor x = block.x_TE.clone();
      block.kv = empty_kv(batch.num_blocks);
      block_forward(weights_.layers[i], batch, x, block.kv, &block);
    }
    block_backward(weights_.layers[i], batch, block, dx, gradients.layers[i]);
  }
  kernels::embedding_backward(batch.ids, dx, gradients.embed_VE);
}

kernels::QkvTransform Decoder::transform(const LayerWeights& layer) const {
  return {{config_.num_attention_heads, config_.num_key_value_heads, config_.head_dim},
          layer.q_norm_D,
          layer.k_norm_D,
          static_cast<float>(config_.rms_norm_eps),
          rope_cos_,
          rope_sin_};
}

void Decoder::block_forward(const LayerWeights& w, const TokenBatch& batch, at::Tensor& x, at::Tensor& kv,
                            BlockActivations* save) const {
  const auto& c = config_;
  const int64_t tokens = batch.num_tokens();
  const float eps = static_cast<float>(c.rms_norm_eps);
  const auto matrix = [&](int64_t width) { return kernels::empty({tokens, width}); };
  const auto heads = [&](int64_t count) { return kernels::empty({tokens, count, c.head_dim}); };

  at::Tensor normed = matrix(c.hidden_size), qkv = matrix(c.q_size() + 2 * c.kv_size());
  kernels::rms_norm(x, w.input_norm_E, eps, normed);
  kernels::linear(normed, w.qkv_NE, w.qkv_bias_N, qkv);

  at::Tensor q = heads(c.num_attention_heads), k = heads(c.num_key_value_heads), v = heads(c.num_key_value_heads);
  kernels::split_qkv(qkv, transform(w), batch.positions, q, k, v);
  kernels::write_kv(k, v, batch.writes, kv);
  at::Tensor attended = heads(c.num_attention_heads), logsumexp = matrix(c.num_attention_heads);
  kernels::attention(q, kv, batch.attention, attended, logsumexp);

  at::Tensor delta = matrix(c.hidden_size);
  kernels::linear(attended.view({tokens, c.q_size()}), w.o_EQ, w.o_bias_E, delta);
  kernels::add(x, delta);
  at::Tensor middle = save != nullptr ? x.clone() : at::Tensor();

  at::Tensor gate_up = matrix(2 * c.intermediate_size), activated = matrix(c.intermediate_size);
  kernels::rms_norm(x, w.post_norm_E, eps, normed);
  kernels::linear(normed, w.gate_up_GE, w.gate_up_bias_G, gate_up);
  kernels::swiglu(gate_up, activated);
  kernels::linear(activated, w.down_EF, w.down_bias_E, delta);
  kernels::add(x, delta);

  if (save != nullptr) {
    save->qkv_TN = qkv;
    save->kv = kv;
    save->attention_THD = attended;
    save->logsumexp_TH = logsumexp;
    save->middle_TE = middle;
    save->gate_up_TG = gate_up;
  }
}

void Decoder::block_backward(const LayerWeights& w, const TokenBatch& batch, const BlockActivations& saved,
                             at::Tensor& dx, LayerWeights& g) const {
  const auto& c = config_;
  const int64_t tokens = batch.num_tokens();
  const float eps = static_cast<float>(c.rms_norm_eps);
  const auto matrix = [&](int64_t width) { return kernels::empty({tokens, width}); };
  const auto zeros = [&](int64_t width) { return kernels::zeros({tokens, width}); };
  const auto heads = [&](int64_t count) { return kernels::empty({tokens, count, c.head_dim}); };

  // MLP. dx is the gradient of both the residual and the branch.
  at::Tensor activated = matrix(c.intermediate_size), normed = matrix(c.hidden_size);
  kernels::swiglu(saved.gate_up_TG, activated);
  kernels::linear_backward_weight(dx, activated, g.down_EF, g.down_bias_E);
  at::Tensor dactivated = zeros(c.intermediate_size), dgate_up = matrix(2 * c.intermediate_size);
  kernels::linear_backward_input(dx, w.down_EF, dactivated);
  kernels::swiglu_backward(dactivated, saved.gate_up_TG, dgate_up);
  kernels::rms_norm(saved.middle_TE, w.post_norm_E, eps, normed);
  kernels::linear_backward_weight(dgate_up, normed, g.gate_up_GE, g.gate_up_bias_G);
  at::Tensor dnormed = zeros(c.hidden_size);
  kernels::linear_backward_input(dgate_up, w.gate_up_GE, dnormed);
  kernels::rms_norm_backward(dnormed, saved.middle_TE, w.post_norm_E, eps, dx, g.post_norm_E);

  // Attention.
  const at::Tensor attended = saved.attention_THD.view({tokens, c.q_size()});
  kernels::linear_backward_weight(dx, attended, g.o_EQ, g.o_bias_E);
  at::Tensor dattended = zeros(c.q_size());
  kernels::linear_backward_input(dx, w.o_EQ, dattended);
  at::Tensor q = heads(c.num_attention_heads), k = heads(c.num_key_value_heads), v = heads(c.num_key_value_heads);
  kernels::split_qkv(saved.qkv_TN, transform(w), batch.positions, q, k, v);
  at::Tensor dq = heads(c.num_attention_heads), dk = heads(c.num_key_value_heads), dv = heads(c.num_key_value_heads);
  kernels::attention_backward(dattended.view(q.sizes()), q, saved.kv, batch.attention, batch.writes,
                              saved.attention_THD, saved.logsumexp_TH, dq, dk, dv);
  at::Tensor dqkv = matrix(c.q_size() + 2 * c.kv_size());
  kernels::split_qkv_backward(dq, dk, dv, saved.qkv_TN, transform(w), batch.positions, dqkv, g.q_norm_D, g.k_norm_D);
  kernels::rms_norm(saved.x_TE, w.input_norm_E, eps, normed);
  kernels::linear_backward_weight(dqkv, normed, g.qkv_NE, g.qkv_bias_N);
  dnormed.zero_();
  kernels::linear_backward_input(dqkv, w.qkv_NE, dnormed);
  kernels::rms_norm_backward(dnormed, saved.x_TE, w.input_norm_E, eps, dx, g.input_norm_E);
}

at::Tensor Decoder::final_norm(const at::Tensor& x, std::span<const int32_t> rows) const {
  const at::Tensor chosen = gather_rows(x, rows);
  at::Tensor normed = kernels::empty(chosen.sizes());
  kernels::rms_norm(chosen, weights_.final_norm_E, static_cast<float>(config_.rms_norm_eps), normed);
  return normed;
}

void Decoder::logits(const at::Tensor& normed, at::Tensor& logits) const {
  kernels::linear(normed, weights_.lm_head_VE, {}, logits);
}

void Decoder::final_norm_backward(const at::Tensor& dnormed, const at::Tensor& x, std::span<const int32_t> rows,
                                  at::Tensor& dx, DecoderWeights& gradients) const {
  const at::Tensor chosen = gather_rows(x, rows);
  at::Tensor dchosen = kernels::zeros(chosen.sizes());
  kernels::rms_norm_backward(dnormed, chosen, weights_.final_norm_E, static_cast<float>(config_.rms_norm_eps), dchosen,
                             gradients.final_norm_E);
  const int64_t width = x.size(1);
  const float* source = kernels::f32(dchosen);
  float* target = kernels::f32(dx);
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t j = 0; j < width; ++j) target[rows[i] * width + j] += source[i * width + j];
}

int64_t Decoder::activation_floats_per_token(bool keep_all) const {
  const auto& c = config_;
  if (!keep_all) return c.hidden_size;
  return 2 * c.hidden_size + 2 * c.q_size() + 4 * c.kv_size() + c.num_attention_heads + 2 * c.intermediate_size;
}

at::Tensor gather_rows(const at::Tensor& x, std::span<const int32_t> rows) {
  const int64_t width = x.size(1);
  at::Tensor out = kernels::empty({static_cast<int64_t>(rows.size()), width});
  const float* source = kernels::f32(x);
  float* target = kernels::f32(out);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(target + i * width, source + rows[i] * width, static_cast<size_t>(width) * sizeof(float));
  return out;
}

}  // namespace tandem
