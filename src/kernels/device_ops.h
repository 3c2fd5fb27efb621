// The ops of another device: a table that a library of its own fills, opened when first asked for, so that the program
// runs with and without a GPU. Signatures and meanings are those of kernels.h.
#pragma once

#include <string_view>

#include "kernels/side_work.h"

namespace tandem::kernels {

struct DeviceOps {
  decltype(&kernels::synchronize) synchronize;
  decltype(&kernels::device_memory) device_memory;
  decltype(&kernels::upload) upload;
  decltype(&kernels::reset_peak_memory) reset_peak_memory;
  decltype(&kernels::mark) mark;
  decltype(&kernels::run_beside) run_beside;
  decltype(&kernels::place) place;
  decltype(&kernels::embedding) embedding;
  decltype(&kernels::embedding_backward) embedding_backward;
  decltype(&kernels::gather_rows) gather_rows;
  decltype(&kernels::gather_rows_backward) gather_rows_backward;
  decltype(&kernels::rms_norm) rms_norm;
  decltype(&kernels::add_rms_norm) add_rms_norm;
  decltype(&kernels::rms_norm_backward) rms_norm_backward;
  decltype(&kernels::linear) linear;
  decltype(&kernels::linear_backward_input) linear_backward_input;
  decltype(&kernels::linear_backward_weight) linear_backward_weight;
  decltype(&kernels::add) add;
  decltype(&kernels::add_to_columns) add_to_columns;
  decltype(&kernels::take_columns) take_columns;
  decltype(&kernels::attend) attend;
  decltype(&kernels::attend_backward) attend_backward;
  decltype(&kernels::copy_kv_blocks) copy_kv_blocks;
  decltype(&kernels::swiglu) swiglu;
  decltype(&kernels::swiglu_backward) swiglu_backward;
  decltype(&kernels::target_logprobs) target_logprobs;
  decltype(&kernels::target_logprobs_backward) target_logprobs_backward;
  decltype(&kernels::draw) draw;
  decltype(&kernels::record_decode) record_decode;
  decltype(&kernels::adamw) adamw;
  decltype(&kernels::spread_rounded) spread_rounded;
  std::vector<std::vector<double>> (*block_squares)(std::span<const at::Tensor> all);
  decltype(&kernels::accumulate) accumulate;
};

inline bool on_device(const at::Tensor& tensor) { return !tensor.is_cpu(); }

// Opens libtandem_cuda.so beside the program or in ../lib/tandem. ConfigError when it or the driver is missing, with
// what to do. Must come before the first tensor on the device.
const DeviceOps& device_ops();
// A function that the library has under this name besides.
void* device_function(const char* name);
// GPUs that the driver shows to this process.
int num_gpus();

// cpu, cuda, or auto: a GPU where the driver and the library are there. Opens the library for a GPU.
at::Device choose_device(std::string_view name);

}  // namespace tandem::kernels
