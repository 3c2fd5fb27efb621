#include "support/bigram.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr float kScale = 32.F;  // sqrt(kBigramVocab), a power of two: all products are exact

constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

std::string utf8(int code) {  // code below 0x800
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// The printable character that byte-level tokenizers write a byte as.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    characters.push_back(utf8(printable ? byte : next++));
  }
  return characters;
}

Json tokenizer_json() {
  Json vocab = Json::object();
  for (const std::string& character : byte_characters()) vocab[character] = vocab.size();
  Json added = Json::array();
  for (const auto& [id, content] : {std::pair{kBigramEndOfText, "<|endoftext|>"},
                                    std::pair{kBigramImStart, "<|im_start|>"}, std::pair{kBigramImEnd, "<|im_end|>"}}) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", Json::array()}}}};
}

Json config_json(const BigramOptions& options) {
  return {{"architectures", Json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"hidden_size", kBigramVocab},
          {"intermediate_size", options.intermediate_size},
          {"num_hidden_layers", options.num_hidden_layers},
          {"num_attention_heads", options.num_attention_heads},
          {"num_key_value_heads", options.num_key_value_heads},
          {"head_dim", options.head_dim},
          {"max_position_embeddings", options.max_position_embeddings},
          {"rms_norm_eps", 1e-12},  // 1 + eps is 1 in fp32: the norm adds no error
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", false},
          {"vocab_size", kBigramVocab},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"bos_token_id", kBigramImStart},
          {"eos_token_id", kBigramImEnd},
          {"torch_dtype", options.dtype == DType::kBF16 ? "bfloat16" : "float32"}};
}

std::vector<TensorSpec> tensor_specs(const BigramOptions& options) {
  const int64_t hidden = kBigramVocab, ff = options.intermediate_size;
  const int64_t q = options.num_attention_heads * options.head_dim, kv = options.num_key_value_heads * options.head_dim;
  std::vector<TensorSpec> specs;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    specs.push_back({name + ".weight", options.dtype, std::move(shape)});
  };
  add("model.embed_tokens", {kBigramVocab, hidden});
  for (int64_t layer = 0; layer < options.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm", {hidden});
    add(prefix + "self_attn.q_proj", {q, hidden});
    add(prefix + "self_attn.k_proj", {kv, hidden});
    add(prefix + "self_attn.v_proj", {kv, hidden});
    add(prefix + "self_attn.o_proj", {hidden, q});
    add(prefix + "post_attention_layernorm", {hidden});
    add(prefix + "mlp.gate_proj", {ff, hidden});
    add(prefix + "mlp.up_proj", {ff, hidden});
    add(prefix + "mlp.down_proj", {hidden, ff});
  }
  add("model.norm", {hidden});
  add("lm_head", {kBigramVocab, hidden});
  return specs;
}

void fill_head(std::vector<float>& head, const BigramTable& table) {
  std::fill(head.begin(), head.end(), table.impossible / kScale);
  for (int32_t last = 0; last < kBigramVocab; ++last) {
    const auto row = table.rows.find(last);
    for (const auto& [next, logit] : row == table.rows.end() ? table.otherwise : row->second) {
      check(next >= 0 && next < kBigramVocab, "a next token is outside the vocabulary");
      head[next * kBigramVocab + last] = logit / kScale;
    }
  }
}

std::vector<float> tensor_values(const TensorSpec& spec, const BigramTable& table) {
  size_t count = 1;
  for (const int64_t size : spec.shape) count *= static_cast<size_t>(size);
  std::vector<float> values(count, 0.F);
  const auto is = [&](std::string_view part) { return spec.name.find(part) != std::string::npos; };
  if (is("embed_tokens")) {
    for (int64_t i = 0; i < kBigramVocab; ++i) values[i * kBigramVocab + i] = kScale;
  } else if (is("lm_head")) {
    fill_head(values, table);
  } else if (is("norm")) {
    std::fill(values.begin(), values.end(), 1.F);
  } else if (!is("o_proj") && !is("down_proj")) {
    Philox random(/*seed=*/1, /*stream=*/std::hash<std::string>{}(spec.name));
    for (float& value : values) value = static_cast<float>(0.04 * random.uniform() - 0.02);
  }
  return values;
}

std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> rounded;
  rounded.reserve(values.size());
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    rounded.push_back(static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16));
  }
  return rounded;
}

}  // namespace

void write_bigram_model(const std::filesystem::path& folder, const BigramTable& table, const BigramOptions& options) {
  check(options.dtype == DType::kF32 || options.dtype == DType::kBF16, "a bigram model is F32 or BF16");
  std::filesystem::create_directories(folder);
  std::vector<float> values;
  std::vector<uint16_t> rounded;
  const auto fetch = [&](const TensorSpec& spec) {
    values = tensor_values(spec, table);
    if (options.dtype == DType::kF32) return std::as_bytes(std::span(values));
    rounded = to_bf16(values);
    return std::as_bytes(std::span(rounded));
  };
  write_safetensors(folder / "model.safetensors", tensor_specs(options), fetch);
  const Json tokenizer_config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"clean_up_tokenization_spaces", false},
                                 {"bos_token", "<|im_start|>"},
                                 {"eos_token", "<|im_end|>"},
                                 {"pad_token", "<|im_end|>"},
                                 {"chat_template", kChatTemplate}};
  const Json generation_config = {{"bos_token_id", kBigramImStart}, {"eos_token_id", kBigramImEnd}};
  write_file_atomic(folder / "config.json", config_json(options).dump(2) + "\n");
  write_file_atomic(folder / "tokenizer.json", tokenizer_json().dump() + "\n");
  write_file_atomic(folder / "tokenizer_config.json", tokenizer_config.dump(2) + "\n");
  write_file_atomic(folder / "generation_config.json", generation_config.dump(2) + "\n");
}

}  // namespace tandem
