#include "train/fsdp.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels/tensor_view.h"
#include "model/placements.h"

namespace tandem {
namespace {

static_assert(kFlatBlock == kernels::kSquareBlock, "a block of the gradient's norm must lie on one rank");

std::vector<at::Tensor> tensors_of(const DecoderWeights& weights) {
  std::vector<at::Tensor> all;
  for (const NamedTensor& parameter : parameters(weights)) all.push_back(parameter.tensor);
  return all;
}

// A layer's tensors in their order.
std::vector<at::Tensor> tensors_of(const LayerWeights& layer) {
  DecoderWeights alone;
  alone.layers = {layer};
  return tensors_of(alone);
}

LayerWeights new_layer(const LayerWeights& like, bool zero) {
  DecoderWeights alone;
  alone.layers = {like};
  return mapped(alone,
                [&](const at::Tensor& t) {
                  return zero ? at::zeros(t.sizes(), t.options()) : at::empty(t.sizes(), t.options());
                })
      .layers[0];
}

std::span<float> part(const at::Tensor& tensor, const Range& range) {
  return {kernels::f32(tensor) + range.begin, static_cast<size_t>(range.size())};
}

}  // namespace

FullyShardedModel::FullyShardedModel(Decoder& decoder, Communicator& world, const Layout& layout)
    : decoder_(decoder), world_(world), layout_(layout) {
  check(layout.tp == 1 && layout.cp == 1 && layout.pp == 1 && layout.world() == world.size(),
        "fully sharded training takes dp_shard and dp_replicate only");
  check(!decoder.on_device(), "fully sharded training runs on the CPU only");
  const Coordinates place = coordinates(layout, world.rank());
  shard_ = at(place, Axis::kDpShard), replica_ = at(place, Axis::kDpReplicate);
  const Axis shard_axis[] = {Axis::kDpShard}, replica_axis[] = {Axis::kDpReplicate};
  gather_group_ = world.split(ranks_along(layout, world.rank(), shard_axis));
  reduce_group_ = gather_group_->duplicate();
  replicas_ = world.split(ranks_along(layout, world.rank(), replica_axis));

  const ParameterList list = placements(decoder.config());
  units_.resize(static_cast<size_t>(list.num_blocks) + 1);
  for (size_t p = 0; p < list.parameters.size(); ++p) {
    const int64_t block = list.parameters[p].block;
    units_[block < 0 ? units_.size() - 1 : static_cast<size_t>(block)].push_back(p);
  }
  const DecoderWeights& whole = decoder.weights();
  for (const at::Tensor& tensor : tensors_of(whole))
    sizes_.push_back(tensor.numel()), shapes_.push_back(tensor.sizes().vec());
  check(sizes_.size() == list.parameters.size(), "the architecture's list is not the decoder's");

  take_weights_from_decoder();
  gradient_shards_ = mapped(shards_, [](const at::Tensor& t) { return at::zeros(t.sizes(), t.options()); });
  gradient_shard_list_ = tensors_of(gradient_shards_);
  for (Slot& slot : slots_) {
    slot.weights = new_layer(whole.layers[0], false);
    slot.tensors = tensors_of(slot.weights);
  }
  // Whole outside the blocks; the blocks share two buffers in turn, so that one can travel while the other fills.
  const LayerWeights even = new_layer(whole.layers[0], true), odd = new_layer(whole.layers[0], true);
  DecoderWeights outside = whole;
  outside.layers.clear();
  gradients_ = mapped(outside, [](const at::Tensor& t) { return at::zeros(t.sizes(), t.options()); });
  for (size_t i = 0; i < whole.layers.size(); ++i) gradients_.layers.push_back(i % 2 == 0 ? even : odd);
  gradient_list_ = tensors_of(gradients_);
}

FullyShardedModel::~FullyShardedModel() { decoder_.keep_blocks_in(nullptr); }

Range FullyShardedModel::range(size_t parameter, int shard) const {
  return layout_.dp_shard == 1 ? Range{0, sizes_[parameter]}
                               : flat_shard(sizes_[parameter], parameter, shard, layout_.dp_shard);
}

FullyShardedModel::Tensors FullyShardedModel::of_unit(const Tensors& all, size_t unit) const {
  Tensors some;
  for (const size_t p : units_[unit]) some.push_back(all[p]);
  return some;
}

DecoderWeights FullyShardedModel::parts_of(const DecoderWeights& whole) const {
  size_t next = 0;
  return mapped(whole, [&](const at::Tensor& tensor) {
    const Range kept = range(next++, shard_);
    at::Tensor out = at::empty({kept.size()}, tensor.options());
    std::ranges::copy(part(tensor, kept), kernels::f32(out));
    return out;
  });
}

DecoderWeights FullyShardedModel::gathered(const DecoderWeights& parts) {
  size_t next = 0;
  const DecoderWeights whole =
      mapped(parts, [&](const at::Tensor& part) { return at::empty(shapes_[next++], part.options()); });
  const Tensors from = tensors_of(parts), to = tensors_of(whole);
  for (size_t unit = 0; unit < units_.size(); ++unit)
    gather(*gather_group_, unit, of_unit(from, unit), of_unit(to, unit));
  return whole;
}

void FullyShardedModel::take_weights_from_decoder() {
  check(!training_, "the decoder's weights are not whole");
  shards_ = parts_of(decoder_.weights());
  shard_list_ = tensors_of(shards_);
  forget_blocks();
}

void FullyShardedModel::forget_blocks() {
  for (Slot& slot : slots_) {
    if (slot.arriving.valid()) slot.arriving.get();
    slot.block.reset();
  }
  last_block_.reset();
}

// Parts go straight to their places in the whole tensors.
void FullyShardedModel::gather(Communicator& group, size_t unit, const Tensors& parts, const Tensors& whole) const {
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (size_t i = 0; i < units_[unit].size(); ++i) {
    const size_t p = units_[unit][i];
    const float* mine = kernels::f32(parts[i]);
    for (int peer = 0; peer < group.size(); ++peer) {
      sends.push_back({peer, bytes_of(mine, static_cast<size_t>(range(p, shard_).size()))});
      receives.push_back({peer, std::as_writable_bytes(part(whole[i], range(p, peer)))});
    }
  }
  group.exchange("all_gather of weights", sends, receives);
}

// The sum in rank order, rank = replica · dp_shard + shard: a replica goes on where the one before it stopped, and the
// last one tells the others.
void FullyShardedModel::reduce(size_t unit, const Tensors& gradients) {
  const std::vector<size_t>& which = units_[unit];
  const int peers = reduce_group_->size();
  size_t kept = 0;
  for (const size_t p : which) kept += static_cast<size_t>(range(p, shard_).size());
  std::vector<std::vector<float>> terms(static_cast<size_t>(peers), std::vector<float>(kept));
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  size_t offset = 0;
  for (size_t i = 0; i < which.size(); ++i) {
    const auto length = static_cast<size_t>(range(which[i], shard_).size());
    for (int peer = 0; peer < peers; ++peer) {
      sends.push_back({peer, std::as_bytes(part(gradients[i], range(which[i], peer)))});
      receives.push_back({peer, bytes_of(terms[static_cast<size_t>(peer)].data() + offset, length)});
    }
    offset += length;
  }
  reduce_group_->exchange("reduce_scatter of gradients", sends, receives);

  std::vector<float> sum;
  size_t first = 0;
  if (replica_ == 0) {
    sum = std::move(terms[first++]);
  } else {
    sum.resize(kept);
    const ReceivePart carried{replica_ - 1, bytes_of(sum.data(), kept)};
    replicas_->exchange("sum of gradients over replicas", {}, {&carried, 1});
  }
  for (; first < terms.size(); ++first) add_into(sum, terms[first]);
  const int last = replicas_->size() - 1;
  if (replica_ < last) {
    const SendPart on{replica_ + 1, bytes_of(static_cast<const float*>(sum.data()), kept)};
    replicas_->exchange("sum of gradients over replicas", {&on, 1}, {});
  }
  broadcast(*replicas_, "gradients to replicas", bytes_of(sum.data(), kept), last);

  offset = 0;
  for (size_t i = 0; i < which.size(); ++i) {
    const auto length = static_cast<size_t>(range(which[i], shard_).size());
    add_into({kernels::f32(gradient_shard_list_[which[i]]), length}, std::span(sum).subspan(offset, length));
    std::fill_n(kernels::f32(gradients[i]), gradients[i].numel(), 0.0f);
    offset += length;
  }
}

void FullyShardedModel::enter_training() {
  if (training_) return;
  training_ = true;
  for (LayerWeights& layer : decoder_.weights().layers) layer = {};
  decoder_.keep_blocks_in(this);
}

void FullyShardedModel::enter_rollout() {
  if (!training_) return;
  wait_for_reduction();
  for (Slot& slot : slots_)
    if (slot.arriving.valid()) slot.arriving.get();
  training_ = false;
  decoder_.keep_blocks_in(nullptr);
  for (LayerWeights& layer : decoder_.weights().layers) layer = new_layer(slots_[0].weights, false);
  const Tensors whole = tensors_of(decoder_.weights());
  for (size_t unit = 0; unit < units_.size(); ++unit)
    gather(*gather_group_, unit, of_unit(shard_list_, unit), of_unit(whole, unit));
}

void FullyShardedModel::weights_changed() {
  forget_blocks();
  DecoderWeights outside = decoder_.weights();
  outside.layers.clear();
  const size_t unit = units_.size() - 1;
  gather(*gather_group_, unit, of_unit(shard_list_, unit), tensors_of(outside));
}

FullyShardedModel::Slot* FullyShardedModel::slot_of(size_t block) {
  for (Slot& slot : slots_)
    if (slot.block == block) return &slot;
  return nullptr;
}

// Into the slot that is not in use.
void FullyShardedModel::fetch(size_t block) {
  if (slot_of(block) != nullptr) return;
  Slot& slot = slots_[last_block_ && slots_[0].block == last_block_ ? 1 : 0];
  if (slot.arriving.valid()) slot.arriving.get();
  slot.block = block;
  slot.arriving = gather_lane_.run(
      [this, block, &slot] { gather(*gather_group_, block, of_unit(shard_list_, block), slot.tensors); });
}

const LayerWeights& FullyShardedModel::weights(size_t block) {
  const size_t top = units_.size() - 2;
  // A pass goes up from the first block or down from the last.
  const bool up = !last_block_ || block > *last_block_ || (block == *last_block_ && block == 0);
  fetch(block);
  last_block_ = block;
  Slot& slot = *slot_of(block);
  if (slot.arriving.valid()) slot.arriving.get();
  if (up && block < top) fetch(block + 1);
  if (!up && block > 0) fetch(block - 1);
  return slot.weights;
}

void FullyShardedModel::wait_for_reduction() {
  if (reducing_.valid()) reducing_.get();
}

void FullyShardedModel::gradients_ready(size_t block) {
  wait_for_reduction();
  reducing_ = reduce_lane_.run([this, block] { reduce(block, of_unit(gradient_list_, block)); });
}

void FullyShardedModel::finish_micro_batch() {
  wait_for_reduction();
  const size_t unit = units_.size() - 1;
  reduce(unit, of_unit(gradient_list_, unit));
}

void FullyShardedModel::idle_micro_batch() {
  const size_t blocks = units_.size() - 1;
  for (size_t i = 0; i < blocks; ++i) weights(i);
  for (size_t i = blocks; i-- > 0;) {
    weights(i);
    gradients_ready(i);
  }
  finish_micro_batch();
}

std::vector<double> FullyShardedModel::gradient_squares() {
  const auto blocks_in = [](int64_t elements) { return static_cast<size_t>((elements + kFlatBlock - 1) / kFlatBlock); };
  std::vector<std::vector<double>> all;  // by parameter and block
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  std::vector<std::vector<double>> mine;
  for (size_t p = 0; p < sizes_.size(); ++p) {
    mine.push_back(kernels::block_squares(gradient_shard_list_[p]));
    all.emplace_back(blocks_in(sizes_[p]));
  }
  for (size_t p = 0; p < sizes_.size(); ++p)
    for (int peer = 0; peer < reduce_group_->size(); ++peer) {
      const Range theirs = range(p, peer);
      sends.push_back({peer, bytes_of(static_cast<const double*>(mine[p].data()), mine[p].size())});
      receives.push_back({peer, bytes_of(all[p].data() + theirs.begin / kFlatBlock, blocks_in(theirs.size()))});
    }
  reduce_group_->exchange("norm of the gradient", sends, receives);
  std::vector<double> sums;
  for (const std::vector<double>& blocks : all) {
    double sum = 0;
    for (const double square : blocks) sum += square;
    sums.push_back(sum);
  }
  return sums;
}

Traffic FullyShardedModel::traffic() const {
  Traffic sum;
  for (const auto* group : {gather_group_.get(), reduce_group_.get(), replicas_.get()}) {
    sum.calls += group->traffic().calls;
    sum.bytes_sent += group->traffic().bytes_sent, sum.bytes_received += group->traffic().bytes_received;
  }
  return sum;
}

}  // namespace tandem
