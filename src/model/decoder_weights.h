// The parameters of a decoder as the kernels want them: q, k, v in one matrix and gate, up in another; fp32 on the CPU,
// bf16 on a GPU. The same struct holds the gradients. A Hugging Face tensor is a run of rows of one of these, so
// loading, saving and sharding by HF names need no second copy. Where there are adapters (lora.h) only they are
// trained.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/linear.h"
#include "model/model_config.h"

namespace tandem {

// Undefined where the model has no such parameter.
struct LayerWeights {
  at::Tensor input_norm_E;
  Linear qkv;                     // [(H + 2K)·D, E]
  at::Tensor q_norm_D, k_norm_D;  // of a head
  Linear o;                       // [E, H·D]
  at::Tensor post_norm_E;
  Linear gate_up, down;  // [2F, E] and [E, F]
};

// The linear layers of a block, in the order of the forward pass.
inline constexpr Linear LayerWeights::*kLinears[] = {&LayerWeights::qkv, &LayerWeights::o, &LayerWeights::gate_up,
                                                     &LayerWeights::down};

struct DecoderWeights {
  at::Tensor embed_VE, final_norm_E;
  at::Tensor lm_head_VE;                   // the embedding itself when tied; undefined with a value head
  at::Tensor value_head_1E, value_bias_1;  // undefined without one
  std::vector<LayerWeights> layers;
  // The fp32 values that the trained ones were rounded from, where they are to be trained in another dtype.
  std::shared_ptr<DecoderWeights> masters;
};

DecoderWeights empty_weights(const ModelConfig& config, const at::TensorOptions& options = at::kFloat);
DecoderWeights zero_weights(const ModelConfig& config, at::Device device = at::kCPU);
// fn of every tensor, in the order of parameters(), in the same places; a tied head stays tied. Without masters.
DecoderWeights mapped(const DecoderWeights& weights, const std::function<at::Tensor(const at::Tensor&)>& fn);
// Copies in another dtype or on another device; a tensor that already is so is shared.
DecoderWeights converted(const DecoderWeights& weights, const at::TensorOptions& options);

// Parts that share the memory of `weights`.
DecoderWeights without_adapters(const DecoderWeights& weights);
DecoderWeights trained(const DecoderWeights& weights);  // the adapters alone where there are some, else everything
bool has_adapters(const DecoderWeights& weights);

// fp32 zeros for all that is trained: gradients, moments.
DecoderWeights zeros_of_trained(const DecoderWeights& weights);

struct ParameterCounts {
  int64_t trained = 0, frozen = 0;
};
ParameterCounts count_parameters(const DecoderWeights& weights);

// Every distinct parameter once, in the order of the forward pass. Names are ours: "layers.3.qkv".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // shares memory with the weights
};
std::vector<NamedTensor> parameters(const DecoderWeights& weights);

// The same memory under Hugging Face's names and shapes, in the order of expected_tensors(); adapters come last, under
// the names of Hugging Face's PEFT.
std::vector<NamedTensor> hf_parameters(const ModelConfig& config, const DecoderWeights& weights);

// What an optimizer updates and a checkpoint holds: the weights themselves where they are fp32, else their masters,
// made of them where there are none yet.
DecoderWeights& masters(DecoderWeights& weights);

std::span<float> values(const at::Tensor& parameter);  // its memory

// Copies a tensor of a file (F32, F16 or BF16) into an fp32 one of the CPU, by many threads. IoError for other types.
void read_values(const TensorView& view, const at::Tensor& out);

// Reads every tensor (any float type) into `weights`, by many threads, and lets the file's pages go. On a GPU no copy
// on the host is made.
void load_weights(const WeightFolder& folder, const ModelConfig& config, DecoderWeights& weights);

// model.safetensors (or shards) and config.json. F32 or BF16. `pace` may be null.
void save_weights(const std::filesystem::path& folder, const ModelConfig& config, const DecoderWeights& weights,
                  DType dtype, WritePace* pace = nullptr);

// Normal(0, 0.02) matrices and unit norms from a counter-based stream: for tests and benches.
void init_random(DecoderWeights& weights, uint64_t seed);
// The same distribution made where the weights are to lie, in bf16, from a generator that repeats itself less strictly.
DecoderWeights random_weights(const ModelConfig& config, at::Device device);

}  // namespace tandem
