// The transformer, for rollout and training alike. A pass runs block by block in an explicit loop; how its tokens lie
// in memory and which keys they may see is an argument (`TokenBatch`), the only thing in which the two differ.
// Thread-safety: const methods may run concurrently on different batches; the weights must not change meanwhile.
#pragma once

#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "model/block_store.h"
#include "model/decoder_weights.h"
#include "model/model_config.h"
#include "parallel/placement.h"

namespace tandem {

class SequenceSplit;
class TensorSplit;
using kernels::TokenBatch;

// What a block's backward needs. With recomputation only `x_TE` is kept and the rest is made again. Adapters keep
// nothing: their inputs are the layers' own, and their narrow products are made again.
struct BlockActivations {
  at::Tensor x_TE;  // the block's input
  at::Tensor qkv_TN, kv, attention_THD, logsumexp_TH, middle_TE, gate_up_TG;
  at::Tensor attended_TQ;  // where sequences are split: of this rank's tokens, and the four above of its heads
  bool complete() const { return qkv_TN.defined(); }
};

// One an entry of TokenBatch, kept between forward and backward.
struct Activations {
  std::shared_ptr<const kernels::DeviceBatch> placed;  // the batch's arrays on a device
  std::vector<BlockActivations> blocks;
  at::Tensor x_TE;  // the last block's output, before the final norm
};

class Decoder {
 public:
  // `max_positions`: the longest sequence it will see, prompt and response together.
  Decoder(ModelConfig config, DecoderWeights weights, int64_t max_positions);

  Decoder base() const;  // the same tensors, adapters left out

  const ModelConfig& config() const { return config_; }
  kernels::HeadShape heads() const;
  size_t num_blocks() const { return static_cast<size_t>(config_.num_hidden_layers); }
  const DecoderWeights& weights() const { return weights_; }
  DecoderWeights& weights() { return weights_; }
  int64_t value_bytes() const { return static_cast<int64_t>(like().element_size()); }
  at::Device device() const { return like().device(); }
  int64_t max_positions() const { return rope_cos_.size(0); }
  bool on_device() const { return !device().is_cpu(); }  // else on the CPU

  // Blocks come from `store` from now on, or from the own weights again (null). It must outlive the passes.
  void keep_blocks_in(BlockStore* store) { store_ = store; }
  // This decoder is one rank's part of a tensor-parallel one, or adds up as one does (null: neither). `split` must
  // outlive the passes.
  void split_by(TensorSplit* split) { split_ = split; }
  TensorSplit* split() const { return split_; }
  // In training this decoder works on one rank's part of each batch's tokens (null: on all of them): matrices have
  // rows for those only. `sequences` must outlive the passes.
  void split_sequences_by(SequenceSplit* sequences) { sequences_ = sequences; }
  SequenceSplit* sequences() const { return sequences_; }
  Range training_rows(const TokenBatch& batch) const;

  std::vector<at::Tensor> make_kv(int64_t num_blocks) const;  // one tensor a layer, unset

  // Inference through a paged cache, one kv tensor a layer. Returns x_TE, before the final norm.
  at::Tensor forward(const TokenBatch& batch, std::span<at::Tensor> kv) const;
  at::Tensor forward(const kernels::PlacedBatch& batch, std::span<at::Tensor> kv) const;

  // The same without a cache: keys and values live for one block only.
  at::Tensor forward_packed(const TokenBatch& batch) const;

  // Training. `keep_all` saves every activation; otherwise backward recomputes block by block. forward_keeping saves
  // every activation of the last `num_kept` blocks.
  // `x_TE`, where this decoder holds a model's later blocks only: what the blocks before made; undefined: the
  // embedding.
  Activations forward_for_training(const TokenBatch& batch, bool keep_all, at::Tensor x_TE = {}) const {
    return forward_keeping(batch, keep_all ? num_blocks() : 0, std::move(x_TE));
  }
  Activations forward_keeping(const TokenBatch& batch, size_t num_kept, at::Tensor x_TE = {}) const;
  // Consumes `activations` and `dx_TE` (gradient of Activations::x_TE); adds into `gradients`.
  void backward(const TokenBatch& batch, Activations activations, at::Tensor dx_TE, DecoderWeights& gradients) const;
  // The same without the embedding: returns the gradient of the first block's input.
  at::Tensor blocks_backward(const TokenBatch& batch, Activations activations, at::Tensor dx_TE,
                             DecoderWeights& gradients) const;

  // The final norm of some rows of x (or of all), and the head's fp32 logits for normed rows.
  at::Tensor final_norm(const at::Tensor& x_TE, std::span<const int32_t> rows) const;
  at::Tensor final_norm(const at::Tensor& x_TE) const;
  void logits(const at::Tensor& normed_RE, at::Tensor& logits_RV) const;
  // This rank's columns of them, where tensor parallelism cuts the vocabulary (model/split_logits.h); else all.
  at::Tensor own_logits(const at::Tensor& normed_RE) const;
  // Sets the gradient of normed_RE and adds into the head's. Where the vocabulary is cut, dlogits are own_logits'.
  void logits_backward(const at::Tensor& dlogits_RV, const at::Tensor& normed_RE, at::Tensor& dnormed_RE,
                       DecoderWeights& gradients) const;
  // Adds the gradient of final_norm() into dx_TE and the norm's weight.
  void final_norm_backward(const at::Tensor& dnormed_RE, const at::Tensor& x_TE, std::span<const int32_t> rows,
                           at::Tensor& dx_TE, DecoderWeights& gradients) const;

  // Values kept per token and layer without recomputation.
  int64_t activations_per_token() const;

 private:
  // Of the type and place of all weights.
  const at::Tensor& like() const { return weights_.embed_VE.defined() ? weights_.embed_VE : like_; }
  const LayerWeights& block(size_t i) const { return store_ == nullptr ? weights_.layers[i] : store_->weights(i); }
  kernels::QkvTransform transform(const LayerWeights& layer) const;
  kernels::PlacedBatch place(const TokenBatch& batch, kernels::KeyLayout layout) const;
  at::Tensor embed(const kernels::PlacedBatch& batch) const;
  // The second product of attention and of the MLP.
  void attention_output(const at::Tensor& attended_TQ, const LayerWeights& layer, at::Tensor& out_TE) const;
  void mlp_output(const at::Tensor& activated_TF, const LayerWeights& layer, at::Tensor& out_TE) const;
  // Attention over the tokens of the batch, this rank's or all; `save`, if given, receives what backward needs.
  at::Tensor attend(const at::Tensor& qkv_TN, const LayerWeights& layer, const kernels::PlacedBatch& batch,
                    at::Tensor& kv, SequenceSplit* sequences, BlockActivations* save) const;
  // x_TE becomes the block's output. `kv`: undefined where `sequences` makes its own.
  void block_forward(const LayerWeights& layer, const kernels::PlacedBatch& batch, at::Tensor& x_TE, at::Tensor& kv,
                     SequenceSplit* sequences, BlockActivations* save) const;
  void block_backward(const LayerWeights& layer, const kernels::PlacedBatch& batch, const BlockActivations& saved,
                      at::Tensor& dx_TE, LayerWeights& gradients) const;
  ModelConfig config_;
  DecoderWeights weights_;
  BlockStore* store_ = nullptr;
  TensorSplit* split_ = nullptr;
  SequenceSplit* sequences_ = nullptr;
  at::Tensor like_;                 // of a decoder without an embedding, whose blocks may lie in a store
  at::Tensor rope_cos_, rope_sin_;  // [max_positions, D / 2]
};

}  // namespace tandem
