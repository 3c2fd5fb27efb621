#include "train/fsdp.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "kernels/side_work.h"

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

LayerWeights new_layer(const LayerWeights& like, const std::function<at::Tensor(const at::Tensor&)>& make) {
  DecoderWeights alone;
  alone.layers = {like};
  return mapped(alone, make).layers[0];
}

at::Tensor unset(const at::Tensor& like) { return at::empty(like.sizes(), like.options()); }

at::Tensor part(const at::Tensor& tensor, const Range& range) {
  return tensor.view({-1}).narrow(0, range.begin, range.size());
}

// Which parameters are whose: of each block, and last of what stands outside the blocks.
std::vector<std::vector<size_t>> units_of(const DecoderWeights& weights) {
  std::vector<std::vector<size_t>> units(weights.layers.size() + 1);
  size_t next = 0;
  if (weights.embed_VE.defined()) units.back().push_back(next++);
  for (size_t block = 0; block < weights.layers.size(); ++block)
    for (size_t left = tensors_of(weights.layers[block]).size(); left > 0; --left) units[block].push_back(next++);
  for (const size_t all = tensors_of(weights).size(); next < all;) units.back().push_back(next++);
  return units;
}

at::Tensor zeros_fp32(const at::Tensor& like) { return at::zeros(like.sizes(), like.options().dtype(at::kFloat)); }

}  // namespace

FullyShardedModel::FullyShardedModel(Decoder& decoder, Communicator& world, const Layout& layout, Routing routing,
                                     std::vector<size_t> places)
    : decoder_(decoder),
      world_(world),
      layout_(layout),
      routing_(std::move(routing)),
      places_(std::move(places)),
      watch_(routing_.model, routing_.gradient_switch) {
  check(layout.tp == 1 && layout.cp == 1 && layout.pp == 1 && layout.world() == world.size(),
        "fully sharded training takes dp_shard and dp_replicate only");
  shard_ = at(coordinates(layout, world.rank()), Axis::kDpShard);
  const Axis shard_axis[] = {Axis::kDpShard};
  const std::vector<int> members = ranks_along(layout, world.rank(), shard_axis);
  group_ = world.split(members);
  if (layout.dp_replicate > 1) replicated_sums_ = world.duplicate();
  Topology& topology = routing_.network.topology;
  if (topology.node_of.empty()) topology = even_topology(world.size(), 0);
  check(topology.num_ranks() == world.size(), "the topology is not of these ranks");
  group_topology_ = topology.of(members);

  const DecoderWeights& whole = decoder.weights();
  units_ = units_of(whole);
  for (const NamedTensor& parameter : parameters(whole)) components_.push_back(component_of(parameter.name));
  for (const at::Tensor& tensor : tensors_of(whole))
    sizes_.push_back(tensor.numel()), shapes_.push_back(tensor.sizes().vec());
  if (places_.empty()) places_.resize(sizes_.size()), std::iota(places_.begin(), places_.end(), size_t{0});
  check(places_.size() == sizes_.size(), "the list of parameters is not the decoder's");

  take_weights_from_decoder();
  for (Slot& slot : slots_) {
    slot.weights = new_layer(whole.layers[0], unset);
    slot.tensors = tensors_of(slot.weights);
  }
  choose_routes();
}

// Whole outside the blocks; the blocks share two buffers in turn, so that one can travel while the other fills.
void FullyShardedModel::make_gradients() {
  gradient_shards_ = mapped(shards_, zeros_fp32);
  gradient_shard_list_ = tensors_of(gradient_shards_);
  const LayerWeights even = new_layer(slots_[0].weights, zeros_fp32), odd = new_layer(slots_[0].weights, zeros_fp32);
  DecoderWeights outside = decoder_.weights();
  outside.layers.clear();
  gradients_ = mapped(outside, zeros_fp32);
  for (size_t i = 0; i + 1 < units_.size(); ++i) gradients_.layers.push_back(i % 2 == 0 ? even : odd);
  gradient_list_ = tensors_of(gradients_);
}

FullyShardedModel::~FullyShardedModel() { decoder_.keep_blocks_in(nullptr); }

Range FullyShardedModel::range(size_t parameter, int shard) const {
  return layout_.dp_shard == 1 ? Range{0, sizes_[parameter]}
                               : flat_shard(sizes_[parameter], places_[parameter], shard, layout_.dp_shard);
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
    return part(tensor, kept).clone();
  });
}

DecoderWeights FullyShardedModel::gathered(const DecoderWeights& parts, bool keep) {
  Tensors whole(sizes_.size());
  const Tensors from = tensors_of(parts);
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    Tensors to;
    for (const size_t p : units_[unit]) to.push_back(at::empty(shapes_[p], from[p].options()));
    beside([&] { gather(units_[unit], of_unit(from, unit), to); }).get();
    for (size_t i = 0; keep && i < to.size(); ++i) whole[units_[unit][i]] = to[i].cpu();
  }
  size_t next = 0;
  return mapped(parts, [&](const at::Tensor&) { return whole[next++]; });
}

void FullyShardedModel::take_weights_from_decoder() {
  check(!training_, "the decoder's weights are not whole");
  DecoderWeights& whole = decoder_.weights();
  shards_ = parts_of(whole);
  if (whole.masters) shards_.masters = std::make_shared<DecoderWeights>(parts_of(*whole.masters));
  whole.masters.reset();
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

// On the lane, where nothing else that this rank exchanges runs beside it.
std::future<void> FullyShardedModel::beside(std::function<void()> work) {
  return lane_.run(
      [this, after = kernels::mark(like()), work = std::move(work)] { kernels::run_beside(like(), after, work); });
}

void FullyShardedModel::enter_training() {
  leave_rollout();
  if (gradient_list_.empty()) make_gradients();
  if (outside_is_old_) weights_changed();
}

void FullyShardedModel::leave_rollout() {
  if (training_) return;
  training_ = true;
  for (LayerWeights& layer : decoder_.weights().layers) layer = {};
  decoder_.keep_blocks_in(this);
}

void FullyShardedModel::parts_changed() {
  check(training_, "parts are set outside of rollout only");
  forget_blocks();
  outside_is_old_ = true;
}

void FullyShardedModel::enter_rollout() {
  if (!training_) return;
  finish_gradients();
  for (Slot& slot : slots_)
    if (slot.arriving.valid()) slot.arriving.get();
  training_ = false;
  decoder_.keep_blocks_in(nullptr);
  for (LayerWeights& layer : decoder_.weights().layers) layer = new_layer(slots_[0].weights, unset);
  const Tensors whole = tensors_of(decoder_.weights());
  std::vector<size_t> all(whole.size());
  std::iota(all.begin(), all.end(), size_t{0});
  beside([&] { gather(all, shard_list_, whole); }).get();  // one exchange: nothing computes meanwhile
  outside_is_old_ = false;
}

void FullyShardedModel::weights_changed() {
  forget_blocks();
  DecoderWeights outside = decoder_.weights();
  outside.layers.clear();
  const size_t unit = units_.size() - 1;
  beside([&] { gather(units_[unit], of_unit(shard_list_, unit), tensors_of(outside)); }).get();
  outside_is_old_ = false;
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
  slot.arriving = beside([this, block, &slot] { gather(units_[block], of_unit(shard_list_, block), slot.tensors); });
}

const LayerWeights& FullyShardedModel::weights(size_t block) {
  const size_t top = units_.size() - 2;
  // A pass goes up from the first block or down from the last.
  const bool up = !last_block_ || block > *last_block_ || (block == *last_block_ && block == 0);
  // Then comes what a pass adds to first: all that the pass before added must have left its place.
  if (up && block == top) finish_gradients();
  fetch(block);
  last_block_ = block;
  Slot& slot = *slot_of(block);
  if (slot.arriving.valid()) slot.arriving.get();
  if (up && block < top) fetch(block + 1);
  if (!up && block > 0) fetch(block - 1);
  return slot.weights;
}

void FullyShardedModel::finish_gradients() {
  for (std::future<void>& reduction : std::exchange(reducing_, {})) reduction.get();
}

void FullyShardedModel::gradients_ready(size_t block) {
  finish_gradients();
  reducing_.push_back(beside([this, block] { reduce(block, of_unit(gradient_list_, block)); }));
}

void FullyShardedModel::finish_micro_batch() {
  const size_t unit = units_.size() - 1;
  reducing_.push_back(beside([this, unit] { reduce(unit, of_unit(gradient_list_, unit)); }));
}

void FullyShardedModel::idle_forward(Range blocks) {
  for (int64_t i = blocks.begin; i < blocks.end; ++i) weights(static_cast<size_t>(i));
}

void FullyShardedModel::idle_backward(Range blocks) {
  for (int64_t i = blocks.end; i-- > blocks.begin;) {
    weights(static_cast<size_t>(i));
    gradients_ready(static_cast<size_t>(i));
  }
}

void FullyShardedModel::idle_micro_batch() {
  const Range all{0, std::ssize(units_) - 1};
  idle_forward(all);
  idle_backward(all);
  finish_micro_batch();
}

std::vector<double> FullyShardedModel::gradient_squares() {
  finish_gradients();
  const auto blocks_in = [](int64_t elements) { return static_cast<size_t>((elements + kFlatBlock - 1) / kFlatBlock); };
  std::vector<std::vector<double>> all;  // by parameter and block
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  const std::vector<std::vector<double>> mine = kernels::block_squares(gradient_shard_list_);
  for (const int64_t size : sizes_) all.emplace_back(blocks_in(size));
  for (size_t p = 0; p < sizes_.size(); ++p)
    for (int peer = 0; peer < group_->size(); ++peer) {
      const Range theirs = range(p, peer);
      sends.push_back({peer, bytes_of(mine[p].data(), mine[p].size())});
      receives.push_back({peer, bytes_of(all[p].data() + theirs.begin / kFlatBlock, blocks_in(theirs.size()))});
    }
  beside([&] { group_->exchange("norm of the gradient", sends, receives); }).get();
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
  for (const auto* group : {group_.get(), replicated_sums_.get()}) {
    if (group == nullptr) continue;
    sum.calls += group->traffic().calls;
    sum.bytes_sent += group->traffic().bytes_sent, sum.bytes_received += group->traffic().bytes_received;
  }
  return sum;
}

}  // namespace tandem
