#include "model/decoder.h"

#include <cmath>

#include "base/error.h"
#include "kernels/tensor_view.h"
#include "model/rope.h"
#include "model/sequence_split.h"
#include "model/tensor_split.h"

namespace tandem {
namespace {

using kernels::KeyLayout;

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

// What the embedding looks at, of some of a batch's tokens.
TokenBatch own_ids(const TokenBatch& batch, const Range& rows) {
  TokenBatch own;
  own.ids.assign(batch.ids.begin() + rows.begin, batch.ids.begin() + rows.end);
  return own;
}

}  // namespace

Decoder::Decoder(ModelConfig config, DecoderWeights weights, int64_t max_positions)
    : config_(std::move(config)), weights_(std::move(weights)) {
  if (!weights_.embed_VE.defined()) like_ = weights_.layers[0].input_norm_E;
  rope_tables(config_, max_positions, rope_cos_, rope_sin_);
  rope_cos_ = rope_cos_.to(device());
  rope_sin_ = rope_sin_.to(device());
}

Decoder Decoder::base() const {
  Decoder other = *this;
  other.weights_ = without_adapters(weights_);
  return other;
}

kernels::HeadShape Decoder::heads() const {
  return {config_.num_attention_heads, config_.num_key_value_heads, config_.head_dim};
}

kernels::QkvTransform Decoder::transform(const LayerWeights& layer) const {
  return {heads(), layer.q_norm_D, layer.k_norm_D, static_cast<float>(config_.rms_norm_eps), rope_cos_, rope_sin_};
}

kernels::PlacedBatch Decoder::place(const TokenBatch& batch, KeyLayout layout) const {
  return kernels::place(batch, layout, heads(), like());
}

std::vector<at::Tensor> Decoder::make_kv(int64_t num_blocks) const {
  std::vector<at::Tensor> kv;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i)
    kv.push_back(
        kernels::empty({num_blocks, 2, config_.num_key_value_heads, config_.head_dim * kernels::kKvBlock}, like()));
  return kv;
}

at::Tensor Decoder::embed(const kernels::PlacedBatch& batch) const {
  at::Tensor x = kernels::empty({batch.tokens.num_tokens(), config_.hidden_size}, weights_.embed_VE);
  if (split_ != nullptr) {
    split_->embedding(batch.tokens.ids, weights_.embed_VE, x);
  } else {
    kernels::embedding(batch, weights_.embed_VE, x);
  }
  return x;
}

at::Tensor Decoder::forward(const TokenBatch& batch, std::span<at::Tensor> kv) const {
  return forward(place(batch, KeyLayout::kPaged), kv);
}

at::Tensor Decoder::forward(const kernels::PlacedBatch& placed, std::span<at::Tensor> kv) const {
  at::Tensor x = embed(placed);
  for (size_t i = 0; i < num_blocks(); ++i) block_forward(block(i), placed, x, kv[i], nullptr, nullptr);
  return x;
}

at::Tensor Decoder::forward_packed(const TokenBatch& batch) const {
  const auto placed = place(batch, KeyLayout::kPacked);
  at::Tensor x = embed(placed), scratch = kernels::packed_kv(placed, heads(), like());
  for (size_t i = 0; i < num_blocks(); ++i) block_forward(block(i), placed, x, scratch, nullptr, nullptr);
  return x;
}

Range Decoder::training_rows(const TokenBatch& batch) const {
  return sequences_ != nullptr ? sequences_->rows(batch.num_tokens()) : Range{0, batch.num_tokens()};
}

Activations Decoder::forward_keeping(const TokenBatch& batch, size_t num_kept, at::Tensor x) const {
  const auto placed = place(batch, KeyLayout::kPacked);
  const auto new_kv = [&] {
    return sequences_ != nullptr ? at::Tensor() : kernels::packed_kv(placed, heads(), like());
  };
  Activations saved{placed.device, {}, {}};
  at::Tensor scratch = num_kept >= num_blocks() ? at::Tensor() : new_kv();
  if (!x.defined() && sequences_ == nullptr) x = embed(placed);
  if (!x.defined()) {
    const TokenBatch own = own_ids(batch, training_rows(batch));
    x = embed({own, KeyLayout::kPacked, nullptr});
  }
  for (size_t i = 0; i < num_blocks(); ++i) {
    BlockActivations& kept = saved.blocks.emplace_back();
    kept.x_TE = x.clone();
    const bool keep = i + num_kept >= num_blocks();
    if (keep) kept.kv = new_kv();
    block_forward(block(i), placed, x, keep ? kept.kv : scratch, sequences_, keep ? &kept : nullptr);
  }
  saved.x_TE = x;
  return saved;
}

void Decoder::backward(const TokenBatch& batch, Activations saved, at::Tensor dx, DecoderWeights& gradients) const {
  const kernels::PlacedBatch placed{batch, KeyLayout::kPacked, saved.placed};
  dx = blocks_backward(batch, std::move(saved), std::move(dx), gradients);
  if (split_ == nullptr && sequences_ == nullptr) return kernels::embedding_backward(placed, dx, gradients.embed_VE);
  const TokenBatch own = own_ids(batch, training_rows(batch));
  if (split_ != nullptr) return split_->embedding_backward(own.ids, dx, gradients.embed_VE);
  kernels::embedding_backward({own, KeyLayout::kPacked, nullptr}, dx, gradients.embed_VE);
}

at::Tensor Decoder::blocks_backward(const TokenBatch& batch, Activations saved, at::Tensor dx,
                                    DecoderWeights& gradients) const {
  const kernels::PlacedBatch placed{batch, KeyLayout::kPacked, saved.placed};
  for (size_t i = num_blocks(); i-- > 0;) {
    const LayerWeights& layer = block(i);
    BlockActivations kept = std::move(saved.blocks[i]);
    if (!kept.complete()) {
      at::Tensor x = kept.x_TE.clone();
      if (sequences_ == nullptr) kept.kv = kernels::packed_kv(placed, heads(), like());
      block_forward(layer, placed, x, kept.kv, sequences_, &kept);
    }
    block_backward(layer, placed, kept, dx, gradients.layers[i]);
    if (store_ != nullptr) store_->gradients_ready(i);
  }
  return dx;
}

void Decoder::attention_output(const at::Tensor& attended, const LayerWeights& w, at::Tensor& out) const {
  if (split_ != nullptr) return split_->attention_output(attended, w.o.weight_NE, w.o.bias_N, out);
  linear(w.o, attended, out);
}

void Decoder::mlp_output(const at::Tensor& activated, const LayerWeights& w, at::Tensor& out) const {
  if (split_ != nullptr) return split_->mlp_output(activated, w.down.weight_NE, w.down.bias_N, out);
  linear(w.down, activated, out);
}

at::Tensor Decoder::attend(const at::Tensor& qkv, const LayerWeights& w, const kernels::PlacedBatch& batch,
                           at::Tensor& kv, SequenceSplit* sequences, BlockActivations* save) const {
  if (sequences != nullptr) {
    const SequenceSplit::Attended found = sequences->attend(qkv, transform(w), batch);
    if (save != nullptr) {
      save->qkv_TN = found.qkv_TN, save->kv = found.kv, save->attention_THD = found.heads_THD;
      save->logsumexp_TH = found.logsumexp_TH, save->attended_TQ = found.rows_RQ;
    }
    return found.rows_RQ;
  }
  const int64_t tokens = qkv.size(0);
  at::Tensor attended = kernels::empty({tokens, config_.num_attention_heads, config_.head_dim}, qkv);
  at::Tensor logsumexp = kernels::empty_fp32({tokens, config_.num_attention_heads}, qkv);
  kernels::attend(qkv, transform(w), batch, kv, attended, logsumexp);
  if (save != nullptr)
    save->qkv_TN = qkv, save->kv = kv, save->attention_THD = attended, save->logsumexp_TH = logsumexp;
  return attended.view({tokens, config_.q_size()});
}

void Decoder::block_forward(const LayerWeights& w, const kernels::PlacedBatch& batch, at::Tensor& x, at::Tensor& kv,
                            SequenceSplit* sequences, BlockActivations* save) const {
  const auto& c = config_;
  const int64_t tokens = x.size(0);
  const float eps = static_cast<float>(c.rms_norm_eps);
  const auto matrix = [&](int64_t width) { return kernels::empty({tokens, width}, x); };

  at::Tensor normed = matrix(c.hidden_size), qkv = matrix(c.q_size() + 2 * c.kv_size());
  kernels::rms_norm(x, w.input_norm_E, eps, normed);
  linear(w.qkv, normed, qkv);
  const at::Tensor attended = attend(qkv, w, batch, kv, sequences, save);
  at::Tensor delta = matrix(c.hidden_size);
  attention_output(attended, w, delta);
  kernels::add_rms_norm(x, delta, w.post_norm_E, eps, normed);
  at::Tensor middle = save != nullptr ? x.clone() : at::Tensor();

  at::Tensor gate_up = matrix(2 * c.intermediate_size), activated = matrix(c.intermediate_size);
  linear(w.gate_up, normed, gate_up);
  kernels::swiglu(gate_up, activated);
  mlp_output(activated, w, delta);
  kernels::add(x, delta);

  if (save != nullptr) {
    save->middle_TE = middle;
    save->gate_up_TG = gate_up;
  }
}

void Decoder::block_backward(const LayerWeights& w, const kernels::PlacedBatch& batch, const BlockActivations& saved,
                             at::Tensor& dx, LayerWeights& g) const {
  const auto& c = config_;
  const int64_t tokens = dx.size(0);
  const float eps = static_cast<float>(c.rms_norm_eps);
  const auto matrix = [&](int64_t width) { return kernels::empty({tokens, width}, dx); };

  // MLP. dx is the gradient of both the residual and the branch.
  at::Tensor dactivated = matrix(c.intermediate_size), dgate_up = matrix(2 * c.intermediate_size);
  linear_backward_input(w.down, dx, dactivated);
  at::Tensor activated = matrix(c.intermediate_size), normed = matrix(c.hidden_size);
  kernels::swiglu_backward(dactivated, saved.gate_up_TG, dgate_up, activated);
  linear_backward_weight(w.down, dx, activated, g.down);
  kernels::rms_norm(saved.middle_TE, w.post_norm_E, eps, normed);
  linear_backward_weight(w.gate_up, dgate_up, normed, g.gate_up);
  at::Tensor dnormed = matrix(c.hidden_size);
  linear_backward_input(w.gate_up, dgate_up, dnormed);
  if (split_ != nullptr) split_->sum(dnormed);
  kernels::rms_norm_backward(dnormed, saved.middle_TE, w.post_norm_E, eps, dx, g.post_norm_E);

  // Attention.
  const bool over_ranks = saved.attended_TQ.defined();
  linear_backward_weight(w.o, dx, over_ranks ? saved.attended_TQ : saved.attention_THD.view({tokens, c.q_size()}), g.o);
  at::Tensor dattended = matrix(c.q_size()), dqkv;
  linear_backward_input(w.o, dx, dattended);
  if (over_ranks) {
    const SequenceSplit::Attended kept{saved.attended_TQ, saved.qkv_TN, saved.kv, saved.attention_THD,
                                       saved.logsumexp_TH};
    dqkv = sequences_->attend_backward(dattended, kept, transform(w), batch, g.q_norm_D, g.k_norm_D);
  } else {
    dqkv = matrix(c.q_size() + 2 * c.kv_size());
    kernels::attend_backward(dattended.view(saved.attention_THD.sizes()), saved.qkv_TN, transform(w), batch, saved.kv,
                             saved.attention_THD, saved.logsumexp_TH, dqkv, g.q_norm_D, g.k_norm_D);
  }
  kernels::rms_norm(saved.x_TE, w.input_norm_E, eps, normed);
  linear_backward_weight(w.qkv, dqkv, normed, g.qkv);
  linear_backward_input(w.qkv, dqkv, dnormed);
  if (split_ != nullptr) split_->sum(dnormed);
  kernels::rms_norm_backward(dnormed, saved.x_TE, w.input_norm_E, eps, dx, g.input_norm_E);
}

at::Tensor Decoder::final_norm(const at::Tensor& x, std::span<const int32_t> rows) const {
  at::Tensor chosen = kernels::empty({static_cast<int64_t>(rows.size()), config_.hidden_size}, x);
  kernels::gather_rows(x, rows, chosen);
  return final_norm(chosen);
}

at::Tensor Decoder::final_norm(const at::Tensor& x) const {
  at::Tensor normed = kernels::empty(x.sizes(), x);
  kernels::rms_norm(x, weights_.final_norm_E, static_cast<float>(config_.rms_norm_eps), normed);
  return normed;
}

void Decoder::logits(const at::Tensor& normed, at::Tensor& logits) const {
  if (split_ == nullptr) return kernels::linear(normed, weights_.lm_head_VE, {}, logits);
  split_->gather_vocabulary(own_logits(normed), logits);
}

at::Tensor Decoder::own_logits(const at::Tensor& normed) const {
  at::Tensor own = kernels::empty_fp32({normed.size(0), weights_.lm_head_VE.size(0)}, normed);
  kernels::linear(normed, weights_.lm_head_VE, {}, own);
  return own;
}

void Decoder::logits_backward(const at::Tensor& dlogits, const at::Tensor& normed, at::Tensor& dnormed,
                              DecoderWeights& gradients) const {
  at::Tensor no_bias;
  kernels::linear_backward_input(dlogits, weights_.lm_head_VE, dnormed);
  if (split_ != nullptr) split_->sum(dnormed);
  kernels::linear_backward_weight(dlogits, normed, gradients.lm_head_VE, no_bias);
}

void Decoder::final_norm_backward(const at::Tensor& dnormed, const at::Tensor& x, std::span<const int32_t> rows,
                                  at::Tensor& dx, DecoderWeights& gradients) const {
  at::Tensor chosen = kernels::empty(dnormed.sizes(), x), dchosen = kernels::empty(dnormed.sizes(), x);
  kernels::gather_rows(x, rows, chosen);
  dchosen.zero_();
  kernels::rms_norm_backward(dnormed, chosen, weights_.final_norm_E, static_cast<float>(config_.rms_norm_eps), dchosen,
                             gradients.final_norm_E);
  kernels::gather_rows_backward(dchosen, rows, dx);
}

int64_t Decoder::activations_per_token() const {
  const auto& c = config_;
  return 2 * c.hidden_size + 2 * c.q_size() + 4 * c.kv_size() + c.num_attention_heads + 2 * c.intermediate_size;
}

}  // namespace tandem
