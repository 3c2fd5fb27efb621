// Between Hugging Face folders and DecoderWeights.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/prefetch.h"
#include "kernels/kernels.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"
#include "model/decoder_weights.h"

namespace tandem {
namespace {

constexpr int64_t kGrain = 1 << 16;

float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction), -24) * (sign != 0 ? -1.0f : 1.0f);
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

float bfloat_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

// Round to nearest even; NaN stays NaN.
uint16_t float_to_bfloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class Source, class Convert>
void convert(const std::byte* in, float* out, int64_t count, Convert to_float) {
  kernels::parallel_for(count, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Source value;  // a file's tensors need not be aligned
      std::memcpy(&value, in + i * sizeof(Source), sizeof(Source));
      out[i] = to_float(value);
    }
  });
}

IoError refused_type(const TensorView& view) {
  return IoError("tensor " + view.name + " has type " + std::string(dtype_name(view.dtype)) +
                 "; F32, F16 and BF16 can be loaded");
}

}  // namespace

void read_values(const TensorView& view, const at::Tensor& tensor) {
  const std::byte* in = view.bytes.data();
  float* out = kernels::f32(tensor);
  const int64_t count = tensor.numel();
  switch (view.dtype) {
    case DType::kF32:
      return convert<float>(in, out, count, [](float x) { return x; });
    case DType::kF16:
      return convert<uint16_t>(in, out, count, half_to_float);
    case DType::kBF16:
      return convert<uint16_t>(in, out, count, bfloat_to_float);
    default:
      throw refused_type(view);
  }
}

namespace {

at::ScalarType scalar_type(const TensorView& view) {
  switch (view.dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    default:
      throw refused_type(view);
  }
}

// Values travel in the file's type; where another is wanted, the device converts them.
void load_on_device(const WeightFolder& folder, const std::vector<NamedTensor>& parameters) {
  std::vector<kernels::HostCopy> copies;
  for (const auto& [name, tensor] : parameters) {
    const TensorView view = folder.get(name);
    if (tensor.scalar_type() == scalar_type(view)) {
      copies.push_back({view.bytes, tensor});
      continue;
    }
    const at::Tensor sent = at::empty(tensor.sizes(), tensor.options().dtype(scalar_type(view)));
    kernels::upload(std::vector<kernels::HostCopy>{{view.bytes, sent}});
    tensor.copy_(sent);
    folder.release(name);
  }
  kernels::upload(copies);
  folder.release();
}

}  // namespace

void load_weights(const WeightFolder& folder, const ModelConfig& config, DecoderWeights& weights) {
  check_tensors(config, folder);
  if (!weights.embed_VE.is_cpu()) return load_on_device(folder, hf_parameters(config, weights));
  const std::vector<NamedTensor> wanted = hf_parameters(config, weights);
  constexpr size_t kAhead = 2;  // tensors that the disk fetches beside the conversion of another
  for (size_t i = 0; i < std::min(kAhead, wanted.size()); ++i) will_need(folder.get(wanted[i].name).bytes);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i + kAhead < wanted.size()) will_need(folder.get(wanted[i + kAhead].name).bytes);
    read_values(folder.get(wanted[i].name), wanted[i].tensor);
    folder.release(wanted[i].name);
  }
}

void save_weights(const std::filesystem::path& folder, const ModelConfig& config, const DecoderWeights& weights,
                  DType dtype, WritePace* pace) {
  check(dtype == DType::kF32 || dtype == DType::kBF16, "weights are saved as F32 or BF16");
  std::map<std::string, at::Tensor> by_name;
  std::vector<TensorSpec> specs;
  for (auto& [name, tensor] : hf_parameters(config, weights)) {
    by_name.emplace(name, tensor);
    specs.push_back({name, dtype, tensor.sizes().vec()});
  }
  std::vector<uint16_t> staging;
  const FetchBytes fetch = [&](const TensorSpec& spec) -> std::span<const std::byte> {
    const at::Tensor& tensor = by_name.at(spec.name);
    const float* values = kernels::f32(tensor);
    if (dtype == DType::kF32) return std::as_bytes(std::span(values, static_cast<size_t>(tensor.numel())));
    staging.resize(static_cast<size_t>(tensor.numel()));
    kernels::parallel_for(tensor.numel(), kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) staging[i] = float_to_bfloat(values[i]);
    });
    return std::as_bytes(std::span(staging));
  };
  write_weight_folder(folder, std::move(specs), fetch, kDefaultShardBytes, pace);
  save_model_config(config, folder, dtype);
}

}  // namespace tandem
