#include "model/model_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

using nlohmann::json;

// MODEL-2 (iii): head_dim is not hidden / heads.
json qwen3() {
  return json::parse(R"({"model_type":"qwen3","vocab_size":96,"hidden_size":64,"intermediate_size":160,
    "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"rms_norm_eps":1e-06,
    "max_position_embeddings":40960,"rope_theta":1000000,"rope_scaling":null,"tie_word_embeddings":true,
    "hidden_act":"silu","attention_bias":false,"use_sliding_window":false,"sliding_window":null,
    "max_window_layers":28,"torch_dtype":"bfloat16"})");
}

json with(json config, const char* key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const char* key) {
  config.erase(key);
  return config;
}

ModelConfig parse(const json& config) { return parse_model_config(config.dump(), "x/config.json"); }

std::string error_in(const json& config) {
  return error_of<ConfigError>([&] { parse(config); });
}

std::vector<int64_t> shape_in(const ModelConfig& config, const std::string& name) {
  for (const auto& tensor : expected_tensors(config))
    if (tensor.name == name) return tensor.shape;
  return {-1};
}

using Shape = std::vector<int64_t>;

TEST(ModelConfig, Qwen3) {
  const auto config = parse(qwen3());
  EXPECT_EQ(config.architecture, Architecture::kQwen3);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(shape_in(config, "model.layers.0.self_attn.q_proj.weight"), (Shape{128, 64}));
  EXPECT_EQ(shape_in(config, "model.layers.0.self_attn.k_proj.weight"), (Shape{64, 64}));
  EXPECT_EQ(shape_in(config, "model.layers.0.self_attn.o_proj.weight"), (Shape{64, 128}));
  EXPECT_EQ(shape_in(config, "model.layers.0.self_attn.q_norm.weight"), (Shape{32}));
  EXPECT_EQ(shape_in(config, "model.layers.0.mlp.down_proj.weight"), (Shape{64, 160}));
  EXPECT_EQ(shape_in(config, "lm_head.weight"), (Shape{-1}));
  // embedding 96*64; q, o 128*64 each; k, v 64*64 each; two norms of 32; three of 160*64; two norms of 64 and the last
  EXPECT_EQ(num_parameters(config), 6144 + 2 * 8192 + 2 * 4096 + 2 * 32 + 3 * 10240 + 3 * 64);
  EXPECT_EQ(parse(without(qwen3(), "head_dim")).head_dim, 128);  // transformers' default
}

// MODEL-2 (i): the config of Qwen2 has no key for its biases.
TEST(ModelConfig, Qwen2HasBiasesWithoutAKey) {
  const auto qwen2 = without(without(with(qwen3(), "model_type", "qwen2"), "attention_bias"), "head_dim");
  const auto config = parse(qwen2);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias || config.qk_norm || config.mlp_bias);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(shape_in(config, "model.layers.0.self_attn.v_proj.bias"), Shape{32});
  EXPECT_EQ(shape_in(config, "model.layers.0.self_attn.o_proj.bias"), Shape{-1});
  EXPECT_TRUE(parse(with(qwen2, "attention_bias", false)).qkv_bias);
}

TEST(ModelConfig, LlamaDefaults) {
  auto llama = json::parse(R"({"model_type":"llama","vocab_size":8,"hidden_size":12,"intermediate_size":20,
    "num_hidden_layers":3,"num_attention_heads":3})");
  const auto config = parse(llama);
  EXPECT_EQ(config.num_key_value_heads, 3);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings || config.qkv_bias || config.o_bias || config.mlp_bias || config.qk_norm);
  EXPECT_EQ(expected_tensors(config).size(), 3u + 3u * 9u);
  EXPECT_EQ(shape_in(config, "lm_head.weight"), (Shape{8, 12}));

  llama["attention_bias"] = true;
  llama["mlp_bias"] = true;
  const auto biased = parse(llama);
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
  EXPECT_EQ(shape_in(biased, "model.layers.2.mlp.up_proj.bias"), Shape{20});
}

TEST(ModelConfig, RefusesWhatItWouldGetWrong) {
  const std::pair<json, std::vector<std::string_view>> cases[] = {
      {with(qwen3(), "model_type", "qwen3_moe"), {"qwen3_moe", "llama, qwen2, qwen3"}},
      {without(qwen3(), "model_type"), {"model_type", "llama, qwen2, qwen3"}},
      {with(qwen3(), "hidden_act", "gelu"), {"hidden_act", "gelu"}},
      {with(qwen3(), "quantization_config", {{"bits", 4}}), {"quantization_config"}},
      {with(qwen3(), "num_key_value_heads", 3), {"num_key_value_heads"}},
      {without(qwen3(), "num_key_value_heads"), {"num_key_value_heads", "missing"}},
      {without(qwen3(), "hidden_size"), {"hidden_size", "missing"}},
      {with(qwen3(), "hidden_size", "64"), {"hidden_size", "\"64\""}},
      {with(qwen3(), "hidden_size", -64), {"hidden_size", "-64"}},
      {with(qwen3(), "vocab_size", 99999999999), {"vocab_size", "out of range"}},
      {with(qwen3(), "num_hidden_layers", 0), {"num_hidden_layers"}},
      {with(qwen3(), "head_dim", 33), {"head_dim", "odd"}},
      {with(qwen3(), "rms_norm_eps", 0), {"rms_norm_eps"}},
      {with(qwen3(), "tie_word_embeddings", "yes"), {"tie_word_embeddings"}},
      {with(qwen3(), "rope_theta", 0), {"rope_theta"}},
  };
  for (const auto& [config, names] : cases) {
    const auto error = error_in(config);
    EXPECT_NE(error.find("x/config.json"), std::string::npos) << error;
    for (const auto name : names) EXPECT_NE(error.find(name), std::string::npos) << name << " not in: " << error;
  }
  for (const char* text : {"", "[]", "{\"model_type\":\"llama\",\"model_type\":\"qwen2\"}"})
    EXPECT_THROW(parse_model_config(text, "config.json"), ConfigError) << text;
}

TEST(ModelConfig, SlidingWindowOnlyWhereItIsInactive) {
  auto windowed = with(qwen3(), "sliding_window", 4096);
  EXPECT_NO_THROW(parse(windowed));  // switched off
  windowed["use_sliding_window"] = true;
  EXPECT_NO_THROW(parse(windowed));  // begins at layer 28
  EXPECT_NO_THROW(parse(with(windowed, "sliding_window", nullptr)));
  windowed["max_window_layers"] = 0;
  expect_names(error_in(windowed), {"use_sliding_window"});
  EXPECT_NO_THROW(parse(with(windowed, "sliding_window", 40960)));
  EXPECT_NO_THROW(parse(with(windowed, "layer_types", {"full_attention"})));
  windowed["max_window_layers"] = 28;
  expect_names(error_in(with(windowed, "layer_types", {"sliding_attention"})), {"use_sliding_window"});
}

TEST(ModelConfig, IsWrittenAsItWasRead) {
  const ScratchFolder scratch;
  auto original = with(qwen3(), "something_of_the_user", {1, 2});
  put(scratch / "config.json", original.dump());
  auto config = load_model_config(scratch.path());
  save_model_config(config, scratch.path(), DType::kF32);
  original["torch_dtype"] = "float32";
  EXPECT_EQ(json::parse(read_file(scratch / "config.json")), original);

  config = parse(with(without(qwen3(), "torch_dtype"), "dtype", "float32"));
  save_model_config(config, scratch.path(), DType::kBF16);
  const auto saved = json::parse(read_file(scratch / "config.json"));
  EXPECT_EQ(saved["dtype"], "bfloat16");
  EXPECT_FALSE(saved.contains("torch_dtype"));
  expect_names(error_of<IoError>([] { load_model_config("/nonexistent"); }), {"/nonexistent/config.json"});
}

class CheckTensors : public testing::Test {
 protected:
  CheckTensors() : config_(parse(qwen3())) {
    for (const auto& [name, shape] : expected_tensors(config_)) specs_[name] = {name, DType::kBF16, shape};
  }
  void check_them(const std::vector<std::string>& also = {}) {
    std::vector<TensorSpec> specs;
    for (const auto& [name, spec] : specs_) specs.push_back(spec);
    std::vector<std::byte> zeros;
    write_weight_folder(scratch_.path(), specs, [&](const TensorSpec& spec) {
      zeros.resize(spec.num_bytes());
      return std::span<const std::byte>(zeros);
    });
    check_tensors(config_, WeightFolder(scratch_.path()), also);
  }
  void expect_error(std::initializer_list<std::string_view> parts) {
    expect_names(error_of<IoError>([&] { check_them(); }), parts);
  }

  ScratchFolder scratch_;
  ModelConfig config_;
  std::map<std::string, TensorSpec> specs_;
};

const std::string kQ = "model.layers.0.self_attn.q_proj.weight";

TEST_F(CheckTensors, AcceptsTheModel) {
  EXPECT_NO_THROW(check_them());
  specs_["lm_head.weight"] = {"lm_head.weight", DType::kBF16, {96, 64}};  // the tied head once more
  specs_["r"] = {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {16}};
  EXPECT_NO_THROW(check_them());
}

TEST_F(CheckTensors, WrongShape) {  // MODEL-1 (vii)
  specs_[kQ].shape = {64, 64};
  expect_error({"model.safetensors", kQ, "[64, 64]", "[128, 64]"});
}

TEST_F(CheckTensors, WrongType) {
  specs_[kQ].dtype = DType::kI16;
  expect_error({"model.safetensors", kQ, "I16"});
}

TEST_F(CheckTensors, MissingNorm) {  // MODEL-2 (v)
  specs_.erase("model.layers.0.self_attn.q_norm.weight");
  expect_error({"model.layers.0.self_attn.q_norm.weight", scratch_.path().string()});
}

TEST_F(CheckTensors, ABiasThatWouldBeDropped) {
  specs_["b"] = {"model.layers.0.self_attn.q_proj.bias", DType::kBF16, {128}};
  expect_error({"model.layers.0.self_attn.q_proj.bias", "has no place"});
  EXPECT_NO_THROW(check_them({"model.layers.0.self_attn.q_proj.bias"}));
}

}  // namespace
}  // namespace tandem
