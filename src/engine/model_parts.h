// A rank's part of a model beside the whole of it: what lies where is known from the placements (model/placements.h)
// and the layout alone, so this is the same for sharded, tensor-parallel and pipelined ranks and for all of these
// together. A part's parameters() are those of the whole that the rank holds, in the same order, each tensor of the
// rank's elements without gaps (flat or not). Thread-safe after construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/sharded_io.h"
#include "model/decoder_weights.h"
#include "parallel/placement.h"

namespace tandem {

class ModelParts {
 public:
  ModelParts(const ModelConfig& config, const Layout& layout);

  const Layout& layout() const { return layout_; }
  // What a rank answers for, so that all ranks together name every element once.
  const std::vector<Held>& owned_by(int rank) const { return owned_[static_cast<size_t>(rank)]; }

  // Room for a rank's part, flat.
  DecoderWeights empty_part(int rank) const;

  // Copies what the rank owns of its part into the whole, and what it holds out of the whole. Any device.
  void put(int rank, const DecoderWeights& part, const DecoderWeights& whole) const;
  void take(int rank, const DecoderWeights& whole, const DecoderWeights& part) const;
  // Reads what the rank holds, and nothing else, of tensors that the files name `prefix` + Hugging Face's name, in any
  // float type. Returns the bytes that were read. IoError for files of another model.
  size_t read(int rank, const ShardedFolder& files, const std::string& prefix, const DecoderWeights& part) const;

  // A rectangle of a whole parameter, and the same as a slice of a tensor in a file.
  at::Tensor box_of(const at::Tensor& whole, const Held& held) const;
  TensorSlice slice_of(const Held& held, const std::string& prefix) const;

 private:
  std::vector<at::Tensor> part_tensors(int rank, const DecoderWeights& part) const;  // by parameter
  const PlacedTensor& tensor_of(const Held& held) const;

  ModelConfig config_;
  ParameterList list_;
  std::vector<std::vector<bool>> is_vector_;  // by parameter and tensor: of one dim
  Layout layout_;
  std::vector<std::vector<Held>> owned_;
};

// fp32 tensors of a whole model in memory of the caller's, one parameter behind the other; and the bytes they take.
DecoderWeights weights_in(const ModelConfig& config, std::byte* memory);
size_t whole_bytes(const ModelConfig& config);

}  // namespace tandem
