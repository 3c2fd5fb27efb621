#include "model/model_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/strict_json.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;
constexpr int64_t kMaxSize = int64_t{1} << 31;  // of any one dimension: products of two then fit int64

// One object of the config, and where it stands for error texts.
class Section {
 public:
  Section(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw ConfigError(where_ + " is not an object");
  }

  // Absent and null mean the same to transformers.
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const json& at(const char* key) const { return object_.at(key); }

  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw ConfigError(where_ + ": '" + key + "' " + what);
  }

  int64_t size(const char* key, std::optional<int64_t> absent = std::nullopt) const {
    if (!has(key)) {
      if (!absent) fail(key, "is missing");
      return *absent;
    }
    const json& value = at(key);
    if (!value.is_number_integer()) fail(key, "is " + value.dump() + ", not a whole number");
    const auto number = value.get<int64_t>();
    if (number <= 0 || number > kMaxSize) fail(key, "is " + value.dump() + ", out of range");
    return number;
  }

  double number(const char* key, std::optional<double> absent = std::nullopt) const {
    if (!has(key)) {
      if (!absent) fail(key, "is missing");
      return *absent;
    }
    if (!at(key).is_number()) fail(key, "is " + at(key).dump() + ", not a number");
    return at(key).get<double>();
  }

  std::optional<double> optional_number(const char* key) const {
    return has(key) ? std::optional(number(key)) : std::nullopt;
  }

  bool flag(const char* key, bool absent) const {
    if (!has(key)) return absent;
    if (!at(key).is_boolean()) fail(key, "is " + at(key).dump() + ", not true or false");
    return at(key).get<bool>();
  }

  std::string text(const char* key, const std::string& absent = "") const {
    if (!has(key)) return absent;
    if (!at(key).is_string()) fail(key, "is " + at(key).dump() + ", not a text");
    return at(key).get<std::string>();
  }

  const json& object() const { return object_; }

 private:
  const json& object_;
  std::string where_;
};

struct Family {
  std::string_view model_type;
  Architecture architecture;
  int64_t default_max_positions;
};

constexpr Family kFamilies[] = {{"llama", Architecture::kLlama, 2048},
                                {"qwen2", Architecture::kQwen2, 32768},
                                {"qwen3", Architecture::kQwen3, 32768}};

const Family& family_of(const Section& root) {
  const std::string model_type = root.text("model_type");
  for (const auto& family : kFamilies)
    if (model_type == family.model_type) return family;
  root.fail("model_type", model_type.empty() ? "is missing; supported are llama, qwen2, qwen3"
                                             : "is " + in_quotes(model_type) + "; supported are llama, qwen2, qwen3");
}

RopeType rope_type_of(const Section& scaling) {
  const std::string type = scaling.text("type"), rope_type = scaling.text("rope_type", type);
  if (!type.empty() && type != rope_type) scaling.fail("type", "and 'rope_type' disagree");
  if (rope_type == "default") return RopeType::kDefault;
  if (rope_type == "linear") return RopeType::kLinear;
  if (rope_type == "llama3") return RopeType::kLlama3;
  if (rope_type == "yarn") return RopeType::kYarn;
  scaling.fail("rope_type", (rope_type.empty() ? "is missing" : "is " + in_quotes(rope_type)) +
                                "; supported are default, linear, llama3, yarn");
}

void check_rope(const RopeConfig& rope, const Section& section) {
  if (!(rope.theta > 1.0)) section.fail("rope_theta", "must be over 1");
  if (!(rope.factor >= 1.0)) section.fail("factor", "must be at least 1");
  if (rope.type == RopeType::kLlama3 && !(rope.low_freq_factor > 0 && rope.low_freq_factor < rope.high_freq_factor))
    section.fail("low_freq_factor", "must be over 0 and below 'high_freq_factor'");
  if (rope.type == RopeType::kYarn && !(rope.beta_slow > 0 && rope.beta_slow <= rope.beta_fast))
    section.fail("beta_slow", "must be over 0 and not above 'beta_fast'");
}

// A key that is not read could change what the scaling means.
void warn_of_unread(const Section& section) {
  static constexpr std::string_view kRead[] = {"type",
                                               "rope_type",
                                               "rope_theta",
                                               "factor",
                                               "original_max_position_embeddings",
                                               "beta_fast",
                                               "beta_slow",
                                               "truncate",
                                               "mscale",
                                               "mscale_all_dim",
                                               "low_freq_factor",
                                               "high_freq_factor",
                                               "attention_factor",
                                               "partial_rotary_factor"};
  for (const auto& [key, value] : section.object().items())
    if (std::find(std::begin(kRead), std::end(kRead), key) == std::end(kRead))
      log_warn("rope scaling: the key " + in_quotes(key) + " has no meaning here and is not read");
}

void read_scaling(const Section& scaling, const Section& root, int64_t max_positions, RopeConfig& rope) {
  constexpr auto kOriginal = "original_max_position_embeddings";
  rope.type = rope_type_of(scaling);
  warn_of_unread(scaling);
  if (scaling.number("partial_rotary_factor", 1.0) != 1.0) scaling.fail("partial_rotary_factor", "must be 1");
  rope.theta = scaling.number("rope_theta", rope.theta);
  if (rope.type == RopeType::kDefault) return;

  const bool has_original = scaling.has(kOriginal) || root.has(kOriginal);
  rope.original_max_position_embeddings =
      scaling.has(kOriginal) ? scaling.size(kOriginal) : root.size(kOriginal, max_positions);
  if (rope.type == RopeType::kLlama3) {
    if (!has_original) scaling.fail(kOriginal, "is missing; llama3 scaling needs it");
    rope.low_freq_factor = scaling.number("low_freq_factor");
    rope.high_freq_factor = scaling.number("high_freq_factor");
  }
  const auto ratio = static_cast<double>(max_positions) / static_cast<double>(rope.original_max_position_embeddings);
  const bool may_derive = rope.type == RopeType::kYarn && has_original;
  rope.factor = scaling.number("factor", may_derive ? std::optional(ratio) : std::nullopt);
  if (rope.type == RopeType::kYarn) {
    rope.beta_fast = scaling.number("beta_fast", rope.beta_fast);
    rope.beta_slow = scaling.number("beta_slow", rope.beta_slow);
    rope.truncate = scaling.flag("truncate", rope.truncate);
    rope.attention_factor = scaling.optional_number("attention_factor");
    rope.mscale = scaling.optional_number("mscale");
    rope.mscale_all_dim = scaling.optional_number("mscale_all_dim");
  }
}

RopeConfig parse_rope(const Section& root, int64_t max_positions, const std::string& source) {
  RopeConfig rope;
  rope.theta = root.number("rope_theta", rope.theta);
  const char* key = root.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!root.has(key)) {
    check_rope(rope, root);
    return rope;
  }
  const Section scaling(root.at(key), source + ": '" + key + "'");
  read_scaling(scaling, root, max_positions, rope);
  check_rope(rope, scaling);
  return rope;
}

// A window that never cuts anything changes nothing.
void refuse_sliding_window(const Section& root, const ModelConfig& config) {
  if (!root.flag("use_sliding_window", false) || !root.has("sliding_window")) return;
  if (root.size("sliding_window") >= config.max_position_embeddings) return;
  bool active = config.num_hidden_layers > root.number("max_window_layers", 28);
  if (root.has("layer_types")) {
    const auto& types = root.at("layer_types");
    active = std::any_of(types.begin(), types.end(), [](const json& type) { return type != json("full_attention"); });
  }
  if (active) root.fail("use_sliding_window", "is true; sliding-window attention is not supported");
}

void refuse_unsupported(const Section& root) {
  if (const auto act = root.text("hidden_act", "silu"); act != "silu")
    root.fail("hidden_act", "is " + in_quotes(act) + "; only silu is supported");
  if (root.has("quantization_config")) root.fail("quantization_config", "is set; give unquantised weights");
  if (root.number("partial_rotary_factor", 1.0) != 1.0) root.fail("partial_rotary_factor", "must be 1");
}

void set_biases(const Section& root, ModelConfig& config) {
  const bool attention_bias = root.flag("attention_bias", false);
  switch (config.architecture) {
    case Architecture::kLlama:
      config.qkv_bias = config.o_bias = attention_bias;
      config.mlp_bias = root.flag("mlp_bias", false);
      break;
    case Architecture::kQwen2:  // always, whatever the config says: transformers has no key for it
      config.qkv_bias = true;
      break;
    case Architecture::kQwen3:
      config.qkv_bias = config.o_bias = attention_bias;
      config.qk_norm = true;
      break;
  }
}

void set_heads(const Section& root, ModelConfig& config) {
  config.num_attention_heads = root.size("num_attention_heads");
  // transformers' default is 32 for the Qwen families, which fits hardly any model that left it out
  const bool is_llama = config.architecture == Architecture::kLlama;
  config.num_key_value_heads =
      root.size("num_key_value_heads", is_llama ? std::optional(config.num_attention_heads) : std::nullopt);
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    root.fail("num_key_value_heads", "does not divide 'num_attention_heads'");
  if (config.architecture == Architecture::kQwen3) {
    config.head_dim = root.size("head_dim", 128);
  } else {
    if (!root.has("head_dim") && config.hidden_size % config.num_attention_heads != 0)
      root.fail("num_attention_heads", "does not divide 'hidden_size', and 'head_dim' is missing");
    config.head_dim = root.size("head_dim", config.hidden_size / config.num_attention_heads);
  }
  if (config.head_dim % 2 != 0) root.fail("head_dim", "is odd; rotary embedding turns pairs");
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view source) {
  json parsed;
  try {
    parsed = parse_strict_json(text, kMaxDepth, source);
  } catch (const IoError& error) {
    throw ConfigError(error.what());
  }
  const Section root(parsed, std::string(source));
  const Family& family = family_of(root);
  refuse_unsupported(root);
  ModelConfig config;
  config.architecture = family.architecture;
  config.vocab_size = root.size("vocab_size");
  config.hidden_size = root.size("hidden_size");
  config.intermediate_size = root.size("intermediate_size");
  config.num_hidden_layers = root.size("num_hidden_layers");
  config.max_position_embeddings = root.size("max_position_embeddings", family.default_max_positions);
  config.rms_norm_eps = root.number("rms_norm_eps", 1e-6);
  if (!(config.rms_norm_eps > 0)) root.fail("rms_norm_eps", "must be over 0");
  config.tie_word_embeddings = root.flag("tie_word_embeddings", false);  // false in all three families
  set_heads(root, config);
  set_biases(root, config);
  config.rope = parse_rope(root, config.max_position_embeddings, std::string(source));
  refuse_sliding_window(root, config);
  config.json = text;
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) throw IoError(path.string() + " is missing; give the folder of a model");
  return parse_model_config(read_file(path), path.string());
}

void save_model_config(const ModelConfig& config, const std::filesystem::path& folder, DType dtype) {
  std::string name;
  switch (dtype) {
    case DType::kF32:
      name = "float32";
      break;
    case DType::kBF16:
      name = "bfloat16";
      break;
    case DType::kF16:
      name = "float16";
      break;
    default:
      check(false, "weights are saved as a float type");
  }
  auto root = nlohmann::ordered_json::parse(config.json);
  // transformers 5 writes "dtype", older ones read only "torch_dtype"
  root[root.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  if (root.contains("dtype") && root.contains("torch_dtype")) root["torch_dtype"] = name;
  write_file_atomic(folder / "config.json", root.dump(2) + "\n");
}

}  // namespace tandem
