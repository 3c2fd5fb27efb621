#include "model/tensor_split.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels/tensor_view.h"
#include "model/placements.h"
#include "parallel/reshard.h"

namespace tandem {
namespace {

std::span<float> rows_of(const at::Tensor& matrix, const Range& rows) {
  const int64_t width = matrix.size(1);
  return {kernels::f32(matrix) + rows.begin * width, static_cast<size_t>(rows.size() * width)};
}

Range share(int64_t rows, int rank, int ranks) { return {rank * rows / ranks, (rank + 1) * rows / ranks}; }

// Leaves come in the order of the tree; the sum of those under `node`.
at::Tensor combine(std::span<const Range> leaves, std::span<const at::Tensor> values, Range node) {
  for (size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i] == node) return values[i];
  if (node.size() == 1) return {};  // beyond the last piece
  const int64_t middle = (node.begin + node.end) / 2;
  at::Tensor left = combine(leaves, values, {node.begin, middle});
  const at::Tensor right = combine(leaves, values, {middle, node.end});
  if (!left.defined() || !right.defined()) return left.defined() ? left : right;
  kernels::add(left, right);
  return left;
}

int64_t tree_size(size_t pieces) { return static_cast<int64_t>(std::bit_ceil(pieces)); }

}  // namespace

TensorSplit::Pieces TensorSplit::cut(int64_t size, int64_t pieces, int ranks) {
  Pieces out;
  for (int64_t i = 0; i < pieces; ++i) out.ends.push_back((i + 1) * size / pieces);
  for (int r = 0; r < ranks; ++r) out.ranges.push_back({r * pieces / ranks, (r + 1) * pieces / ranks});
  return out;
}

TensorSplit::TensorSplit(const ModelConfig& whole, std::unique_ptr<Communicator> ranks)
    : whole_(whole), ranks_(std::move(ranks)), list_(placements(whole)) {
  if (ranks_) rank_ = ranks_->rank();
  check_layout(whole_, {.tp = size()});
  attention_ = cut(whole_.q_size(), whole_.num_key_value_heads, size());
  mlp_ = cut(whole_.intermediate_size, kTpPieces, size());
}

ModelConfig TensorSplit::local_config() const {
  ModelConfig local = whole_;
  const int64_t heads_a_key = whole_.num_attention_heads / whole_.num_key_value_heads;
  local.num_key_value_heads = attention_.ranges[rank_].size();
  local.num_attention_heads = local.num_key_value_heads * heads_a_key;
  local.intermediate_size = sharded_range(whole_.intermediate_size, kTpPieces, rank_, size()).size();
  return local;
}

bool TensorSplit::is_cut(size_t parameter) const {
  return list_.parameters[parameter].tensors[0].tp.kind == Placement::Kind::kShard;
}

DecoderWeights TensorSplit::part_of(const DecoderWeights& whole) const {
  std::vector<std::vector<Held>> held(list_.parameters.size());
  for (const Held& box : holdings(list_, {.tp = size()}, rank_)) held[box.parameter].push_back(box);
  size_t next = 0;
  return mapped(whole, [&](const at::Tensor& tensor) {
    const size_t p = next++;
    const bool by_columns = is_cut(p) && list_.parameters[p].tensors[0].tp.dim == 1;
    std::vector<int64_t> shape = tensor.sizes().vec();
    if (is_cut(p)) shape[by_columns ? 1 : 0] = 0;
    for (const Held& box : held[p])
      if (is_cut(p)) shape[by_columns ? 1 : 0] += by_columns ? box.box.cols.size() : box.box.rows.size();
    at::Tensor part = at::empty(shape, tensor.options());
    int64_t above = 0;  // rows of the tensors stacked before
    size_t t = 0;
    for (const Held& box : held[p]) {
      for (; t < box.tensor; ++t) above += list_.parameters[p].tensors[t].rows;
      const int64_t width = list_.parameters[p].tensors[box.tensor].cols, count = box.box.cols.size();
      for (int64_t row = 0; row < box.box.rows.size(); ++row)
        std::copy_n(kernels::f32(tensor) + (above + box.box.rows.begin + row) * width + box.box.cols.begin, count,
                    kernels::f32(part) + box.offset + row * count);
    }
    return part;
  });
}

DecoderWeights TensorSplit::gathered(const DecoderWeights& part) {
  if (size() == 1) return part;
  const DecoderWeights whole = empty_weights(whole_);
  const auto from = parameters(part), to = parameters(whole);
  ReshardMemory memory;
  memory.from = [&](size_t p) { return static_cast<std::byte*>(from[p].tensor.data_ptr()); };
  memory.to = [&](size_t p) { return static_cast<std::byte*>(to[p].tensor.data_ptr()); };
  reshard(*ranks_, plan_reshard(list_, {.tp = size()}, {.dp_replicate = size()}), memory);
  return whole;
}

void TensorSplit::attention_output(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   at::Tensor& out) {
  output(attention_, x, weight, bias, out);
}

void TensorSplit::mlp_output(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& out) {
  output(mlp_, x, weight, bias, out);
}

void TensorSplit::collect_leaves(const Pieces& pieces, Range node, std::vector<Leaf>& leaves) {
  const auto count = static_cast<int64_t>(pieces.ends.size());
  if (node.begin >= count) return;
  const int64_t end = std::min(node.end, count);
  for (size_t r = 0; r < pieces.ranges.size(); ++r)
    if (pieces.ranges[r].begin <= node.begin && end <= pieces.ranges[r].end) {
      leaves.push_back({node, static_cast<int>(r)});
      return;
    }
  const int64_t middle = (node.begin + node.end) / 2;
  collect_leaves(pieces, {node.begin, middle}, leaves);
  collect_leaves(pieces, {middle, node.end}, leaves);
}

at::Tensor TensorSplit::subtree(const Pieces& pieces, Range node, const at::Tensor& x, const at::Tensor& weight) const {
  if (node.begin >= static_cast<int64_t>(pieces.ends.size())) return {};
  if (node.size() == 1) {
    const auto start = [&](int64_t piece) { return piece == 0 ? int64_t{0} : pieces.ends[piece - 1]; };
    const int64_t own = start(pieces.ranges[rank_].begin), first = start(node.begin);
    at::Tensor out = kernels::empty({x.size(0), weight.size(0)}, x);
    kernels::linear_piece(x, weight, first - own, pieces.ends[node.begin] - first, out);
    return out;
  }
  const int64_t middle = (node.begin + node.end) / 2;
  at::Tensor left = subtree(pieces, {node.begin, middle}, x, weight);
  const at::Tensor right = subtree(pieces, {middle, node.end}, x, weight);
  if (right.defined()) kernels::add(left, right);
  return left;
}

// Every rank adds up the subtrees of some rows and tells the others.
void TensorSplit::output(const Pieces& pieces, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         at::Tensor& out) {
  const Range root{0, tree_size(pieces.ends.size())};
  std::vector<Leaf> leaves;
  collect_leaves(pieces, root, leaves);
  const int64_t rows = x.size(0), width = weight.size(0);
  const Range mine = share(rows, rank_, size());
  std::vector<Range> nodes;
  std::vector<at::Tensor> whole(leaves.size()), own_rows;
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (size_t i = 0; i < leaves.size(); ++i) {
    nodes.push_back(leaves[i].pieces);
    own_rows.push_back(kernels::empty({mine.size(), width}, x));
    receives.push_back({leaves[i].owner, std::as_writable_bytes(rows_of(own_rows[i], {0, mine.size()}))});
    if (leaves[i].owner != rank_) continue;
    whole[i] = subtree(pieces, leaves[i].pieces, x, weight);
    if (size() == 1) {
      own_rows[i] = whole[i];
      continue;
    }
    for (int peer = 0; peer < size(); ++peer)
      sends.push_back({peer, std::as_bytes(rows_of(whole[i], share(rows, peer, size())))});
  }
  if (size() > 1) ranks_->exchange("sum of a product", sends, receives);
  at::Tensor sum = combine(nodes, own_rows, root);
  if (bias.defined()) {
    float* to = kernels::f32(sum);
    const float* add = kernels::f32(bias);
    for (int64_t row = 0; row < mine.size(); ++row)
      for (int64_t col = 0; col < width; ++col) to[row * width + col] += add[col];
  }
  std::ranges::copy(rows_of(sum, {0, mine.size()}), rows_of(out, mine).begin());
  if (size() == 1) return;
  std::vector<std::span<std::byte>> parts;
  for (int r = 0; r < size(); ++r) parts.push_back(std::as_writable_bytes(rows_of(out, share(rows, r, size()))));
  all_gather(*ranks_, "rows of a product", parts);
}

void TensorSplit::sum(at::Tensor& values) {
  if (size() > 1)
    all_reduce(*ranks_, "sum over tensor-parallel ranks",
               std::span(kernels::f32(values), static_cast<size_t>(values.numel())));
}

Range TensorSplit::vocabulary(int rank) const { return sharded_range(whole_.vocab_size, kTpPieces, rank, size()); }

void TensorSplit::embedding(std::span<const int32_t> ids, const at::Tensor& weight, at::Tensor& out) {
  const int64_t width = weight.size(1);
  std::vector<std::vector<float>> rows(static_cast<size_t>(size()));
  const auto owner = [&](int32_t id) {
    int rank = 0;
    while (id >= vocabulary(rank).end) ++rank;
    return static_cast<size_t>(rank);
  };
  for (const int32_t id : ids) {
    check(id >= 0 && id < whole_.vocab_size, "token id outside the vocabulary");
    auto& theirs = rows[owner(id)];
    theirs.resize(theirs.size() + static_cast<size_t>(width));
  }
  std::vector<size_t> next(rows.size(), 0);
  const auto own = static_cast<size_t>(rank_);
  for (const int32_t id : ids)
    if (owner(id) == own)
      std::copy_n(kernels::f32(weight) + (id - vocabulary(rank_).begin) * width, width,
                  rows[own].data() + static_cast<int64_t>(next[own]++) * width);
  if (size() > 1) {
    std::vector<std::span<std::byte>> parts;
    for (auto& theirs : rows) parts.push_back(bytes_of(theirs.data(), theirs.size()));
    all_gather(*ranks_, "rows of the embedding", parts);
  }
  std::fill(next.begin(), next.end(), 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t from = owner(ids[i]);
    std::copy_n(rows[from].data() + static_cast<int64_t>(next[from]++) * width, width,
                kernels::f32(out) + static_cast<int64_t>(i) * width);
  }
}

void TensorSplit::embedding_backward(std::span<const int32_t> ids, const at::Tensor& dout, at::Tensor& dweight) const {
  const Range own = vocabulary(rank_);
  const int64_t width = dout.size(1);
  const float* from = kernels::f32(dout);
  float* to = kernels::f32(dweight);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < own.begin || ids[i] >= own.end) continue;
    for (int64_t j = 0; j < width; ++j)
      to[(ids[i] - own.begin) * width + j] += from[static_cast<int64_t>(i) * width + j];
  }
}

void TensorSplit::gather_vocabulary(const at::Tensor& own, at::Tensor& logits) {
  const int64_t rows = logits.size(0);
  std::vector<at::Tensor> columns;
  std::vector<std::span<std::byte>> parts;
  for (int r = 0; r < size(); ++r) {
    columns.push_back(r == rank_ ? own : kernels::empty({rows, vocabulary(r).size()}, logits));
    parts.push_back(std::as_writable_bytes(rows_of(columns.back(), {0, rows})));
  }
  if (size() > 1) all_gather(*ranks_, "logits", parts);
  for (int r = 0; r < size(); ++r) {
    const Range v = vocabulary(r);
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(kernels::f32(columns[r]) + row * v.size(), v.size(),
                  kernels::f32(logits) + row * whole_.vocab_size + v.begin);
  }
}

at::Tensor TensorSplit::own_vocabulary(const at::Tensor& logits) const {
  const Range v = vocabulary(rank_);
  at::Tensor own = kernels::empty({logits.size(0), v.size()}, logits);
  for (int64_t row = 0; row < logits.size(0); ++row)
    std::copy_n(kernels::f32(logits) + row * whole_.vocab_size + v.begin, v.size(), kernels::f32(own) + row * v.size());
  return own;
}

void TensorSplit::finish_gradients(DecoderWeights& gradients) {
  for (LayerWeights& layer : gradients.layers)
    for (at::Tensor* norm : {&layer.q_norm_D, &layer.k_norm_D})
      if (norm->defined()) sum(*norm);
}

double TensorSplit::total(std::span<const double> by_parameter) {
  double cut = 0, same = 0;
  for (size_t p = 0; p < by_parameter.size(); ++p) (is_cut(p) ? cut : same) += by_parameter[p];
  if (size() > 1) all_reduce(*ranks_, "norm of the gradient", std::span(&cut, 1));
  return cut + same;
}

}  // namespace tandem
