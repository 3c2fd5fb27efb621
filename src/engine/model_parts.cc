#include "engine/model_parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <unordered_map>

#include "base/error.h"
#include "model/placements.h"
#include "parallel/ownership.h"

namespace tandem {
namespace {

// A held rectangle in the rank's memory of its parameter.
at::Tensor piece_of(const at::Tensor& part, const Held& held) {
  return part.view({-1}).narrow(0, held.offset, held.box.elements()).view({held.box.rows.size(), held.box.cols.size()});
}

// Values in the file's type become fp32. Returns the bytes that were read.
size_t read_slice(const ShardedFolder& files, const TensorSlice& slice, const at::Tensor& target,
                  std::vector<std::byte>& staging) {
  const DType dtype = files.dtype(slice.name);
  if (dtype == DType::kF32 && target.is_cpu())
    return files.read(slice.name, slice.start, slice.shape, std::as_writable_bytes(values(target)));
  staging.resize(static_cast<size_t>(target.numel()) * dtype_size(dtype));
  const size_t bytes = files.read(slice.name, slice.start, slice.shape, staging);
  const at::Tensor host = target.is_cpu() ? target : at::empty(target.sizes(), at::kFloat);
  read_values({slice.name, dtype, slice.shape, staging}, host);
  if (!target.is_cpu()) target.copy_(host);
  return bytes;
}

}  // namespace

ModelParts::ModelParts(const ModelConfig& config, const Layout& layout)
    : config_(config), list_(placements(config)), layout_(layout), owned_(owned(list_, layout)) {
  std::unordered_map<std::string, size_t> dims;
  for (const ExpectedTensor& tensor : expected_tensors(config)) dims[tensor.name] = tensor.shape.size();
  for (const PlacedParameter& parameter : list_.parameters) {
    is_vector_.emplace_back();
    for (const PlacedTensor& tensor : parameter.tensors) is_vector_.back().push_back(dims.at(tensor.name) == 1);
  }
}

const PlacedTensor& ModelParts::tensor_of(const Held& held) const {
  return list_.parameters[held.parameter].tensors[held.tensor];
}

at::Tensor ModelParts::box_of(const at::Tensor& whole, const Held& held) const {
  int64_t above = 0;  // rows of the tensors stacked before
  for (size_t t = 0; t < held.tensor; ++t) above += list_.parameters[held.parameter].tensors[t].rows;
  return whole.view({-1, tensor_of(held).cols})
      .narrow(0, above + held.box.rows.begin, held.box.rows.size())
      .narrow(1, held.box.cols.begin, held.box.cols.size());
}

TensorSlice ModelParts::slice_of(const Held& held, const std::string& prefix) const {
  const PlacedTensor& tensor = tensor_of(held);
  const Box& box = held.box;
  TensorSlice slice{prefix + tensor.name, DType::kF32, {tensor.rows}, {box.rows.begin}, {box.rows.size()}};
  if (is_vector_[held.parameter][held.tensor]) return slice;
  slice.global_shape.push_back(tensor.cols);
  slice.start.push_back(box.cols.begin), slice.shape.push_back(box.cols.size());
  return slice;
}

std::vector<at::Tensor> ModelParts::part_tensors(int rank, const DecoderWeights& part) const {
  std::vector<at::Tensor> by_parameter(list_.parameters.size());
  const std::vector<NamedTensor> tensors = parameters(part);
  size_t next = 0;
  for (size_t p = 0; p < by_parameter.size(); ++p)
    if (holds(list_, list_.parameters[p], layout_, rank)) {
      check(next < tensors.size(), "a rank's part lacks parameters that its layout says it holds");
      by_parameter[p] = tensors[next++].tensor;
    }
  check(next == tensors.size(), "a rank's part has parameters that its layout does not know");
  std::vector<int64_t> held(by_parameter.size(), 0);
  for (const Held& piece : holdings(list_, layout_, rank)) held[piece.parameter] += piece.box.elements();
  for (size_t p = 0; p < held.size(); ++p)
    check(!by_parameter[p].defined() || by_parameter[p].numel() == held[p],
          "a rank's part of " + list_.parameters[p].name + " is not what its layout says");
  return by_parameter;
}

DecoderWeights ModelParts::empty_part(int rank) const {
  std::vector<int64_t> held(list_.parameters.size(), 0);
  for (const Held& piece : holdings(list_, layout_, rank)) held[piece.parameter] += piece.box.elements();
  size_t next = 0;
  return mapped(empty_weights(config_, at::device(at::kMeta).dtype(at::kFloat)), [&](const at::Tensor&) {
    const size_t p = next++;
    return holds(list_, list_.parameters[p], layout_, rank) ? at::empty({held[p]}, at::kFloat) : at::Tensor();
  });
}

void ModelParts::put(int rank, const DecoderWeights& part, const DecoderWeights& whole) const {
  const std::vector<at::Tensor> from = part_tensors(rank, part);
  const std::vector<NamedTensor> to = parameters(whole);
  for (const Held& held : owned_by(rank))
    box_of(to[held.parameter].tensor, held).copy_(piece_of(from[held.parameter], held));
}

void ModelParts::take(int rank, const DecoderWeights& whole, const DecoderWeights& part) const {
  const std::vector<NamedTensor> from = parameters(whole);
  const std::vector<at::Tensor> to = part_tensors(rank, part);
  for (const Held& held : holdings(list_, layout_, rank)) {
    if (held.box.empty()) continue;
    piece_of(to[held.parameter], held).copy_(box_of(from[held.parameter].tensor, held));
  }
}

size_t ModelParts::read(int rank, const ShardedFolder& files, const std::string& prefix,
                        const DecoderWeights& part) const {
  constexpr size_t kAhead = 4;  // pieces that the disk fetches beside the copying
  const std::vector<at::Tensor> to = part_tensors(rank, part);
  std::vector<Held> pieces = holdings(list_, layout_, rank);
  std::erase_if(pieces, [](const Held& held) { return held.box.empty(); });
  const auto announce = [&](size_t i) {
    if (i >= pieces.size()) return;
    const TensorSlice slice = slice_of(pieces[i], prefix);
    if (files.shape(slice.name) != slice.global_shape)
      throw IoError(files.path().string() + ": tensor " + slice.name +
                    " is of another shape; the files are of another model");
    files.will_read(slice.name, slice.start, slice.shape);
  };
  for (size_t i = 0; i < kAhead; ++i) announce(i);
  size_t bytes = 0;
  std::vector<std::byte> staging;
  for (size_t i = 0; i < pieces.size(); ++i) {
    announce(i + kAhead);
    bytes += read_slice(files, slice_of(pieces[i], prefix), piece_of(to[pieces[i].parameter], pieces[i]), staging);
  }
  return bytes;
}

DecoderWeights weights_in(const ModelConfig& config, std::byte* memory) {
  return mapped(empty_weights(config, at::device(at::kMeta).dtype(at::kFloat)), [&](const at::Tensor& shape) {
    at::Tensor tensor = at::from_blob(memory, shape.sizes(), at::kFloat);
    memory += tensor.nbytes();
    return tensor;
  });
}

size_t whole_bytes(const ModelConfig& config) { return sizeof(float) * static_cast<size_t>(num_parameters(config)); }

}  // namespace tandem
