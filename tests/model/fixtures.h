// The tiny models of tests/data/models, loaded, and a pass over whole sequences through a paged cache.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/tensor_view.h"
#include "model/decoder.h"

namespace tandem {

using Tokens = std::vector<int32_t>;

inline const std::vector<std::string> kTinyModels = {"llama_tied", "llama_bias", "qwen2", "qwen3_tied", "qwen3"};

inline std::filesystem::path model_folder(const std::string& name) {
  return std::filesystem::path(TANDEM_TEST_DATA) / "models" / name;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline DecoderWeights read_weights(const std::filesystem::path& folder, const ModelConfig& config) {
  DecoderWeights weights = empty_weights(config);
  load_weights(WeightFolder(folder), config, weights);
  return weights;
}

inline std::unique_ptr<Decoder> make_decoder(const std::filesystem::path& folder, int64_t max_positions = 128) {
  ModelConfig config = load_model_config(folder);
  DecoderWeights weights = read_weights(folder, config);
  return std::make_unique<Decoder>(std::move(config), std::move(weights), max_positions);
}

// A cache of NaN: a slot that nobody wrote must not matter.
inline std::vector<at::Tensor> poisoned_kv(const Decoder& decoder, int64_t blocks) {
  auto kv = decoder.make_kv(blocks);
  for (auto& layer : kv) std::fill_n(kernels::f32(layer), layer.numel(), std::numeric_limits<float>::quiet_NaN());
  return kv;
}

// Logits of every position of every sequence, all sequences going on together: each pass takes the next `chunks[i]`
// tokens (the last chunk size again and again) of every sequence that has any left. Their blocks lie interleaved and
// in descending order.
using Rows = std::vector<std::vector<float>>;  // one a position
inline std::vector<Rows> paged_logits(const Decoder& decoder, const std::vector<Tokens>& sequences,
                                      const std::vector<int>& chunks) {
  const int64_t vocab = decoder.config().vocab_size;
  size_t longest = 0;
  for (const auto& tokens : sequences) longest = std::max(longest, tokens.size());
  const auto per_sequence = static_cast<int32_t>(longest / kernels::kKvBlock + 1);
  const auto num_blocks = static_cast<int32_t>(sequences.size()) * per_sequence;
  auto kv = poisoned_kv(decoder, num_blocks);
  const auto block_of = [&](size_t sequence, size_t index) {
    return num_blocks - 1 - static_cast<int32_t>(index * sequences.size() + sequence);
  };
  std::vector<Rows> all(sequences.size());
  size_t begin = 0;
  for (size_t pass = 0; begin < longest; ++pass) {
    const auto chunk = static_cast<size_t>(chunks[std::min(pass, chunks.size() - 1)]);
    TokenBatch batch;
    batch.num_blocks = num_blocks;
    std::vector<size_t> owner;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const size_t end = std::min(sequences[s].size(), begin + chunk);
      if (begin >= end) continue;
      batch.attention.spans.push_back({static_cast<int32_t>(batch.num_tokens()), static_cast<int32_t>(end - begin),
                                       static_cast<int32_t>(begin),
                                       static_cast<int32_t>(batch.attention.block_tables.size())});
      for (int32_t i = 0; i < per_sequence; ++i) batch.attention.block_tables.push_back(block_of(s, i));
      for (size_t p = begin; p < end; ++p) {
        const auto slot = static_cast<int32_t>(block_of(s, p / kernels::kKvBlock) * kernels::kKvBlock +
                                               static_cast<int32_t>(p % kernels::kKvBlock));
        batch.writes.push_back({static_cast<int32_t>(batch.num_tokens()), slot});
        batch.ids.push_back(sequences[s][p]);
        batch.positions.push_back(static_cast<int32_t>(p));
        owner.push_back(s);
      }
    }
    const at::Tensor x = decoder.forward(batch, kv);
    std::vector<int32_t> rows(owner.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    at::Tensor logits = kernels::empty({batch.num_tokens(), vocab});
    decoder.logits(decoder.final_norm(x, rows), logits);
    for (size_t i = 0; i < owner.size(); ++i) {
      const float* row = kernels::f32(logits) + static_cast<int64_t>(i) * vocab;
      all[owner[i]].emplace_back(row, row + vocab);
    }
    begin += chunk;
  }
  return all;
}

// log p of each token after the first, at a temperature.
inline std::vector<float> sequence_logprobs(const Rows& rows, const Tokens& tokens, float inv_temperature = 1) {
  std::vector<float> out;
  for (size_t i = 0; i + 1 < tokens.size(); ++i)
    out.push_back(
        kernels::logprob(rows[i], tokens[i + 1], inv_temperature, kernels::row_stats(rows[i], inv_temperature, false)));
  return out;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::vector<Tokens> golden_sequences(const nlohmann::json& golden) {
  std::vector<Tokens> all;
  for (const auto& sequence : golden["sequences"]) all.push_back(sequence["tokens"].get<Tokens>());
  return all;
}

}  // namespace tandem
