// Adapters against numbers by hand, against the merged model, and against PEFT in float64 (tests/data/models/*/lora).
#include "model/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/scratch_folder.h"
#include "data/expect_error.h"
#include "kernels/kernels.h"
#include "model/fixtures.h"
#include "model/random_adapters.h"

namespace tandem {
namespace {

using nlohmann::json;

at::Tensor matrix(at::IntArrayRef shape, std::initializer_list<float> numbers) {
  at::Tensor out = kernels::empty(shape);
  std::ranges::copy(numbers, values(out).begin());
  return out;
}

std::vector<float> floats(const at::Tensor& tensor) {
  const auto span = values(tensor);
  return {span.begin(), span.end()};
}

// Two outputs of three get rank one, alpha / rank = 3. x = (1, 2): W x = (1, 2, 3), a x = 1 · 1 + 1 · 2 = 3,
// 3 · b · 3 = (9, -9), into outputs 1 and 2.
struct ByHand {
  Linear layer{matrix({3, 2}, {1, 0, 0, 1, 1, 1}), {}, {}};
  at::Tensor x = matrix({1, 2}, {1, 2});
  ByHand() { layer.adapters.push_back({"k_proj", 1, 3, matrix({1, 2}, {1, 1}), matrix({2, 1}, {1, -1})}); }
};

TEST(Lora, AddsItsPartToItsOutputs) {
  ByHand hand;
  at::Tensor out = kernels::empty({1, 3});
  linear(hand.layer, hand.x, out);
  EXPECT_EQ(floats(out), (std::vector<float>{1, 11, -6}));
}

// d out = (1, 2, 3). Back through W: (1 + 3, 2 + 3). The adapter's part is 3 · (2, 3) = (6, 9); through b: 6 - 9 = -3;
// through a: (-3, -3). db = part · (a x) = (18, 27); da = -3 · x = (-3, -6). The weight is frozen: no gradient.
TEST(Lora, GradientsByHand) {
  ByHand hand;
  const at::Tensor dout = matrix({1, 3}, {1, 2, 3});
  at::Tensor dx = kernels::empty({1, 2});
  linear_backward_input(hand.layer, dout, dx);
  EXPECT_EQ(floats(dx), (std::vector<float>{1, 2}));
  Linear gradient;
  gradient.adapters.push_back({"k_proj", 1, 3, kernels::zeros({1, 2}), kernels::zeros({2, 1})});
  linear_backward_weight(hand.layer, dout, hand.x, gradient);
  EXPECT_EQ(floats(gradient.adapters[0].b_MR), (std::vector<float>{18, 27}));
  EXPECT_EQ(floats(gradient.adapters[0].a_RE), (std::vector<float>{-3, -6}));
  EXPECT_FALSE(gradient.weight_NE.defined());
}

TEST(Lora, ModulesByName) {
  using Names = std::vector<std::string_view>;
  const Names all = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  EXPECT_EQ(lora_modules({"all-linear"}, {}, ""), all);
  EXPECT_EQ(lora_modules({"v_proj", "self_attn.q_proj", "v_proj"}, {}, ""), (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(lora_modules({"all-linear"}, {"q_proj", "k_proj", "v_proj", "o_proj"}, ""),
            (Names{"gate_proj", "up_proj", "down_proj"}));
  expect_error<ConfigError>([] { lora_modules({"qproj"}, {}, "model."); },
                            {"model.target_modules", "'qproj'", "q_proj", "down_proj"});
  expect_error<ConfigError>([] { lora_modules({"q_proj"}, {"lm_head"}, "model."); },
                            {"model.exclude_modules", "'lm_head'"});
  expect_error<ConfigError>([] { lora_modules({"q_proj"}, {"q_proj"}, "model."); },
                            {"model.target_modules", "no projection is left"});
  EXPECT_ANY_THROW(lora_modules({}, {}, ""));
}

// Kaiming's uniform with √5: within ±1/√inputs, of variance inputs^-1 / 3. b is 0.
TEST(Lora, FirstValuesAreThoseOfPeft) {
  const ModelConfig config = load_model_config(model_folder("qwen2"));
  LoraOptions options{.rank = 16, .alpha = 32, .target_modules = {"all-linear"}, .seed = 3};
  const DecoderWeights adapters = new_adapters(config, options);
  const auto all = parameters(adapters);
  ASSERT_EQ(all.size(), 2 * 7 * 2U);
  for (const auto& [name, tensor] : all) {
    double squares = 0, greatest = 0;
    for (const float value : values(tensor)) {
      squares += double{value} * value;
      greatest = std::max(greatest, std::abs(double{value}));
    }
    if (name.ends_with("lora_B")) {
      EXPECT_EQ(greatest, 0) << name;
      continue;
    }
    const auto inputs = static_cast<double>(tensor.size(1)), count = static_cast<double>(tensor.numel());
    EXPECT_LE(greatest, 1 / std::sqrt(inputs)) << name;
    EXPECT_GT(greatest, 0.97 / std::sqrt(inputs)) << name;
    EXPECT_NEAR(squares / count * inputs * 3, 1, 0.15) << name;  // 512 values or more: five deviations
  }
  EXPECT_TRUE(same_bits(values(all[0].tensor), values(parameters(new_adapters(config, options))[0].tensor)));
  EXPECT_FALSE(same_bits(values(all[0].tensor), values(all[2].tensor)));
  options.seed = 4;
  EXPECT_FALSE(same_bits(values(all[0].tensor), values(parameters(new_adapters(config, options))[0].tensor)));
}

class LoraModel : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder_ = model_folder(GetParam());
  ModelConfig config_ = load_model_config(folder_);
  std::vector<Tokens> sequences_ = golden_sequences(read_json(folder_ / "golden.json"));

  std::unique_ptr<Decoder> decoder(DecoderWeights weights) const {
    return std::make_unique<Decoder>(config_, std::move(weights), 128);
  }
  DecoderWeights adapted(const LoraOptions& options) const {
    DecoderWeights weights = read_weights(folder_, config_);
    attach_adapters(weights, make_adapters(config_, options));
    return weights;
  }
};

TEST_P(LoraModel, NewAdaptersChangeNoBit) {
  const auto plain = paged_logits(*make_decoder(folder_), sequences_, {5});
  const auto with = paged_logits(*decoder(adapted({.rank = 4, .target_modules = {"all-linear"}})), sequences_, {5});
  for (size_t s = 0; s < plain.size(); ++s)
    for (size_t p = 0; p < plain[s].size(); ++p) ASSERT_TRUE(same_bits(plain[s][p], with[s][p]));
}

TEST_P(LoraModel, TheMergedModelSaysTheSame) {
  DecoderWeights weights = adapted({.rank = 4, .alpha = 6, .target_modules = {"all-linear"}});
  randomize(weights, 9, 0.15);
  const auto with = paged_logits(*decoder(weights), sequences_, {64});
  const auto base = paged_logits(*decoder(without_adapters(weights)), sequences_, {64});
  DecoderWeights whole = read_weights(folder_, config_);
  attach_adapters(whole, trained(weights));
  merge_adapters(whole);
  EXPECT_FALSE(has_adapters(whole));
  const auto merged = paged_logits(*decoder(whole), sequences_, {64});
  double moved = 0;
  for (size_t s = 0; s < with.size(); ++s) {
    const auto a = sequence_logprobs(with[s], sequences_[s]), b = sequence_logprobs(merged[s], sequences_[s]),
               c = sequence_logprobs(base[s], sequences_[s]);
    for (size_t t = 0; t < a.size(); ++t) {
      EXPECT_NEAR(a[t], b[t], 1e-5) << "sequence " << s << ", token " << t;
      moved = std::max(moved, std::abs(double{a[t]} - c[t]));
    }
  }
  EXPECT_GT(moved, 0.1);
}

// Chunks and neighbours, as for the model alone: an adapter's products keep to their rows too.
TEST_P(LoraModel, BitsDoNotDependOnChunksOrNeighbours) {
  DecoderWeights weights = adapted({.rank = 3, .target_modules = {"all-linear"}});
  randomize(weights, 9, 0.15);
  const auto model = decoder(weights);
  const auto reference = paged_logits(*model, sequences_, {1});
  for (const std::vector<int>& chunks : {std::vector{64}, {3}, {17, 1}, {5, 11, 1, 1, 7}}) {
    const auto got = paged_logits(*model, sequences_, chunks);
    for (size_t s = 0; s < got.size(); ++s)
      for (size_t p = 0; p < got[s].size(); ++p) ASSERT_TRUE(same_bits(got[s][p], reference[s][p]));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, LoraModel, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

class PeftAdapter : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path model_ = model_folder(GetParam()), folder_ = model_ / "lora";
  ModelConfig config_ = load_model_config(model_);
};

TEST_P(PeftAdapter, LogProbsAreThoseOfPeft) {
  DecoderWeights weights = read_weights(model_, config_);
  attach_adapters(weights, load_adapters(folder_, config_));
  const Decoder decoder(config_, std::move(weights), 128);
  const json golden = read_json(folder_ / "golden.json");
  const auto sequences = golden_sequences(golden);
  const auto rows = paged_logits(decoder, sequences, {9});
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto wanted = golden["sequences"][s]["logprobs"].get<std::vector<double>>();
    const auto got = sequence_logprobs(rows[s], sequences[s]);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t t = 0; t < got.size(); ++t) EXPECT_NEAR(got[t], wanted[t], 5e-5) << s << " " << t;
  }
}

// The names and values of PEFT's own file, and its config as far as it says anything.
TEST_P(PeftAdapter, IsSavedAsPeftSavesIt) {
  const ScratchFolder scratch;
  save_adapters(scratch / "again", config_, load_adapters(folder_, config_), "some/model");
  EXPECT_EQ(read_file(scratch / "again" / "adapter_model.safetensors"),
            read_file(folder_ / "adapter_model.safetensors"));
  json mine = read_json(scratch / "again" / "adapter_config.json"), peft = read_json(folder_ / "adapter_config.json");
  EXPECT_EQ(mine["base_model_name_or_path"], "some/model");
  EXPECT_EQ(adapter_base_model(scratch / "again"), "some/model");
  const auto names = [](const json& modules) {  // PEFT writes whole paths for some
    std::set<std::string> all;
    for (const std::string& path : modules.get<std::vector<std::string>>())
      all.insert(path.substr(path.find_last_of('.') + 1));
    return all;
  };
  EXPECT_EQ(names(mine["target_modules"]), names(peft["target_modules"]));
  for (const char* key : {"base_model_name_or_path", "target_modules"}) mine.erase(key);
  for (const auto& [key, value] : mine.items()) EXPECT_EQ(value, peft.at(key)) << key;
}

INSTANTIATE_TEST_SUITE_P(Models, PeftAdapter, testing::Values("qwen2", "llama_bias", "qwen3"),
                         [](const auto& param) { return param.param; });

class LoraFiles : public testing::Test {
 protected:
  // An adapter of qwen2 with one key of its config changed.
  std::filesystem::path changed(const std::string& key, const json& value) {
    const auto folder = scratch_ / ("changed" + std::to_string(++count_));
    std::filesystem::create_directories(folder);
    json config = read_json(peft_ / "adapter_config.json");
    config[key] = value;
    write_file_atomic(folder / "adapter_config.json", config.dump());
    std::filesystem::copy_file(peft_ / "adapter_model.safetensors", folder / "adapter_model.safetensors");
    return folder;
  }
  const std::filesystem::path peft_ = model_folder("qwen2") / "lora";
  const ModelConfig config_ = load_model_config(model_folder("qwen2"));
  ScratchFolder scratch_;
  int count_ = 0;
};

TEST_F(LoraFiles, OtherKindsAreRefusedByName) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{{"use_dora", true},
                                                                            {"use_rslora", true},
                                                                            {"bias", "all"},
                                                                            {"peft_type", "IA3"},
                                                                            {"init_lora_weights", "pissa"},
                                                                            {"rank_pattern", {{"q_proj", 8}}},
                                                                            {"modules_to_save", {"lm_head"}}})
    expect_error<ConfigError>([&] { load_adapters(changed(key, value), config_); }, {"adapter_config.json", key});
  expect_error<ConfigError>([&] { load_adapters(changed("r", 0), config_); }, {"'r'"});
  expect_error<ConfigError>([&] { load_adapters(changed("lora_alpha", nullptr), config_); }, {"'lora_alpha'"});
}

// A name or shape that does not fit must not leave the model without its adapter.
TEST_F(LoraFiles, TensorsMustFitToTheLast) {
  expect_error<IoError>([&] { load_adapters(changed("r", 8), config_); }, {"adapter_model.safetensors", "shape"});
  const ModelConfig other = load_model_config(model_folder("qwen3"));  // its projections are wider
  expect_error<IoError>([&] { load_adapters(peft_, other); }, {"shape", "another model"});
  const auto folder = changed("r", 4);
  const SafetensorsFile file(peft_ / "adapter_model.safetensors");
  std::vector<TensorView> tensors(file.tensors().begin(), file.tensors().end());
  const std::string first = tensors[0].name;
  tensors[0].name = "base_model.model.lm_head.lora_A.weight";
  write_safetensors(folder / "adapter_model.safetensors", tensors);
  expect_error<IoError>([&] { load_adapters(folder, config_); }, {"there is no tensor", first});
  tensors[0].name = first;
  TensorView more = tensors[0];
  more.name = "base_model.model.lm_head.lora_A.weight";
  tensors.push_back(more);
  write_safetensors(folder / "adapter_model.safetensors", tensors);
  expect_error<IoError>([&] { load_adapters(folder, config_); }, {"lm_head", "has no place"});
}

TEST_F(LoraFiles, AreFoundInACheckpoint) {
  const auto checkpoint = scratch_ / "global_step_3";
  EXPECT_EQ(find_adapter(checkpoint), "");
  save_adapters(checkpoint / "actor" / "lora_adapter", config_, load_adapters(peft_, config_), "m");
  EXPECT_EQ(find_adapter(checkpoint), checkpoint / "actor" / "lora_adapter");
  EXPECT_EQ(find_adapter(checkpoint / "actor"), checkpoint / "actor" / "lora_adapter");
  EXPECT_EQ(find_adapter(peft_), peft_);
  expect_error<ConfigError>([&] { make_adapters(config_, {.rank = 8, .adapter = peft_}); }, {"lora_rank=8", "rank 4"});
}

}  // namespace
}  // namespace tandem
