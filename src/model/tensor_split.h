// Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053): every rank has some heads, a part of the MLP's inner
// width and of the vocabulary, and all of them run the same passes. Whatever the number of ranks, one included, a sum
// over the inner width is made of the same pieces added up by the same tree, so the bits of a forward pass do not
// depend on it: the virtual split. Backward sums run in rank order. CPU only. All ranks call the same methods in the
// same order. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/decoder_weights.h"
#include "parallel/collectives.h"
#include "parallel/mesh.h"
#include "parallel/placement.h"

namespace tandem {

class TensorSplit {
 public:
  // Null `ranks`: one rank, which adds up as many would. ConfigError where the model cannot be cut into so many parts.
  TensorSplit(const ModelConfig& whole, std::unique_ptr<Communicator> ranks);

  int size() const { return ranks_ ? ranks_->size() : 1; }
  int rank() const { return rank_; }
  const ModelConfig& whole_config() const { return whole_; }
  // The decoder's configuration on this rank: its heads and inner width; the vocabulary counts in full.
  ModelConfig local_config() const;
  // This rank's part of whole weights, and the whole again, on every rank.
  DecoderWeights part_of(const DecoderWeights& whole) const;
  DecoderWeights gathered(const DecoderWeights& part);

  // out = x · weightᵀ + bias over the columns of all ranks; x and weight are this rank's. Of attention's and the MLP's
  // second product.
  void attention_output(const at::Tensor& x_TQ, const at::Tensor& weight_EQ, const at::Tensor& bias_E,
                        at::Tensor& out_TE);
  void mlp_output(const at::Tensor& x_TF, const at::Tensor& weight_EF, const at::Tensor& bias_E, at::Tensor& out_TE);
  // values becomes the sum over ranks.
  void sum(at::Tensor& values);

  // Rows of ids, of which this rank's weight has a part.
  void embedding(std::span<const int32_t> ids, const at::Tensor& weight_VE, at::Tensor& out_TE);
  void embedding_backward(std::span<const int32_t> ids, const at::Tensor& dout_TE, at::Tensor& dweight_VE) const;
  // From this rank's columns of the logits to all, and back.
  void gather_vocabulary(const at::Tensor& own_RV, at::Tensor& logits_RV);
  at::Tensor own_vocabulary(const at::Tensor& logits_RV) const;
  Range vocabulary(int rank) const;
  // Every rank's values, by rank. `lengths`: how many each has; empty: as many as this one.
  template <class T>
  std::vector<std::vector<T>> gather_values(std::string_view operation, const std::vector<T>& own,
                                            std::span<const size_t> lengths) {
    std::vector<std::vector<T>> all(static_cast<size_t>(size()));
    std::vector<std::span<std::byte>> parts;
    for (size_t r = 0; r < all.size(); ++r) {
      all[r].resize(lengths.empty() ? own.size() : lengths[r]);
      if (r == static_cast<size_t>(rank_)) all[r] = own;
      parts.push_back(bytes_of(all[r].data(), all[r].size()));
    }
    if (ranks_) all_gather(*ranks_, operation, parts);
    return all;
  }

  // Once all passes of a step are through: what every rank has, though each only saw its heads (q_norm, k_norm).
  void finish_gradients(DecoderWeights& gradients);
  // Σ over the whole model's parameters, given this rank's by parameter.
  double total(std::span<const double> by_parameter);

 private:
  // Columns that fall into pieces, of which rank r has ranges[r]; `ends` counts in columns of the whole.
  struct Pieces {
    std::vector<int64_t> ends;
    std::vector<Range> ranges;
  };
  // A subtree of the sum that lies on one rank.
  struct Leaf {
    Range pieces;  // as the tree cuts them; may reach beyond the last piece
    int owner;
  };

  static Pieces cut(int64_t size, int64_t pieces, int ranks);
  static void collect_leaves(const Pieces& pieces, Range node, std::vector<Leaf>& leaves);
  void output(const Pieces& pieces, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
              at::Tensor& out);
  at::Tensor subtree(const Pieces& pieces, Range node, const at::Tensor& x, const at::Tensor& weight) const;
  bool is_cut(size_t parameter) const;

  ModelConfig whole_;
  std::unique_ptr<Communicator> ranks_;
  int rank_ = 0;
  ParameterList list_;
  Pieces attention_, mlp_;
};

}  // namespace tandem
