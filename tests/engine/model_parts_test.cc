// Every layout's parts make the whole again, element by element, in memory and through files, and read no byte that is
// another's.
#include "engine/model_parts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "model/placements.h"
#include "parallel/ownership.h"

namespace tandem {
namespace {

ModelConfig small_model(bool qwen) {
  ModelConfig c;
  c.architecture = qwen ? Architecture::kQwen3 : Architecture::kLlama;
  c.qk_norm = c.tie_word_embeddings = qwen;
  c.vocab_size = 1000, c.hidden_size = 32, c.intermediate_size = 144, c.num_hidden_layers = 4;
  c.num_attention_heads = 8, c.num_key_value_heads = 4, c.head_dim = 4;
  c.max_position_embeddings = 128;
  return c;
}

// The parallel issue's list.
const std::vector<Layout> kLayouts = {
    {.dp_shard = 2},
    {.dp_shard = 4},
    {.dp_replicate = 2, .dp_shard = 2},
    {.tp = 2},
    {.tp = 4},
    {.pp = 2},
    {.pp = 4},
    {.pp = 2, .tp = 2},
    {.dp_shard = 2, .tp = 2},
    {.cp = 2},
    {.pp = 2, .dp_shard = 2},
    {},
    {.dp_replicate = 3},
};

// 0, 1, 2, ... : what no two places share.
DecoderWeights numbered(const ModelConfig& config, std::vector<float>& memory) {
  memory.resize(whole_bytes(config) / sizeof(float));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  return weights_in(config, reinterpret_cast<std::byte*>(memory.data()));
}

bool same(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].tensor.numel() != y[i].tensor.numel() ||
        std::memcmp(x[i].tensor.data_ptr(), y[i].tensor.data_ptr(), x[i].tensor.nbytes()) != 0)
      return false;
  return x.size() == y.size();
}

TEST(ModelParts, MakeTheWholeAgain) {
  for (const bool qwen : {true, false})
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(layout_name(layout));
      const ModelConfig config = small_model(qwen);
      std::vector<float> numbers, again(whole_bytes(config) / sizeof(float), -1);
      const DecoderWeights whole = numbered(config, numbers),
                           copy = weights_in(config, reinterpret_cast<std::byte*>(again.data()));
      const ModelParts parts(config, layout);
      for (int rank = 0; rank < layout.world(); ++rank) {
        const DecoderWeights part = parts.empty_part(rank);
        parts.take(rank, whole, part);
        parts.put(rank, part, copy);
      }
      EXPECT_EQ(again, numbers);
    }
}

TEST(ModelParts, EveryElementHasOneOwnerAndCopiesTakeTurns) {
  const ModelConfig config = small_model(true);
  for (const Layout& layout : kLayouts) {
    std::vector<int64_t> elements;
    for (const auto& held : owned(placements(config), layout)) {
      elements.push_back(0);
      for (const Held& piece : held) elements.back() += piece.box.elements();
    }
    EXPECT_EQ(std::accumulate(elements.begin(), elements.end(), int64_t{0}), num_parameters(config));
    for (const int64_t own : elements) EXPECT_GT(own, 0) << layout_name(layout);
  }
}

// Files of each layout, read at each other.
TEST(ModelParts, EveryLayoutReadsWhatEveryOtherWrote) {
  const ModelConfig config = small_model(true);
  std::vector<float> numbers;
  const DecoderWeights whole = numbered(config, numbers);
  for (const Layout& written : kLayouts) {
    const ScratchFolder folder;
    const ModelParts writers(config, written);
    for (int rank = 0; rank < written.world(); ++rank) {
      std::vector<TensorSlice> slices;
      std::vector<at::Tensor> boxes;
      for (const Held& held : writers.owned_by(rank)) {
        slices.push_back(writers.slice_of(held, "x."));
        boxes.push_back(writers.box_of(parameters(whole)[held.parameter].tensor, held).contiguous());
      }
      write_slices(folder / (std::to_string(rank) + ".safetensors"), slices,
                   [&](size_t i) { return std::as_bytes(values(boxes[i])); });
    }
    const ShardedFolder files(folder.path());
    for (const Layout& reading : kLayouts) {
      SCOPED_TRACE(layout_name(written) + " read as " + layout_name(reading));
      const ModelParts readers(config, reading);
      for (int rank = 0; rank < reading.world(); ++rank) {
        const DecoderWeights part = readers.empty_part(rank), expected = readers.empty_part(rank);
        const size_t bytes = readers.read(rank, files, "x.", part);
        readers.take(rank, whole, expected);
        EXPECT_TRUE(same(part, expected));
        int64_t held = 0;
        for (const NamedTensor& tensor : parameters(part)) held += tensor.tensor.numel();
        EXPECT_EQ(bytes, sizeof(float) * static_cast<size_t>(held));
      }
    }
  }
}

TEST(ModelParts, RefuseAnotherModelsFilesAndMissingRanks) {
  const ModelConfig config = small_model(true);
  std::vector<float> numbers;
  const DecoderWeights whole = numbered(config, numbers);
  const ModelParts writers(config, {.dp_shard = 2});
  const ScratchFolder folder;
  std::vector<TensorSlice> slices;
  std::vector<at::Tensor> boxes;
  for (const Held& held : writers.owned_by(1)) {
    slices.push_back(writers.slice_of(held, ""));
    boxes.push_back(writers.box_of(parameters(whole)[held.parameter].tensor, held).contiguous());
  }
  write_slices(folder / "1.safetensors", slices, [&](size_t i) { return std::as_bytes(values(boxes[i])); });
  const ShardedFolder files(folder.path());
  const ModelParts reader(config, {.tp = 2});
  EXPECT_THROW(reader.read(0, files, "", reader.empty_part(0)), IoError);
  ModelConfig wider = config;
  wider.intermediate_size = 160;
  const ModelParts other(wider, {});
  EXPECT_THROW(other.read(0, files, "", other.empty_part(0)), IoError);
}

}  // namespace
}  // namespace tandem
