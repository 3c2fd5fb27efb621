// Shared by the device kernels' headers, which hold raw pointers, sizes and a stream: no torch.
//
// Shapes as in kernels/kernels.h: T tokens, E hidden size, F intermediate size, H query heads, K key/value heads,
// D head dim, N = (H + 2K)·D, V vocabulary, R rows, P positions. Unless said otherwise every pointer is to device
// memory, tensors are contiguous and rows begin at 16-byte borders (widths are multiples of 8). Activations, compute
// weights and the KV cache are bf16; statistics, logits, weight gradients, masters and moments are fp32.
//
// Every launcher: asynchronous on `stream`; allocates nothing; never waits (so it may be captured in a graph); returns
// cudaErrorInvalidValue for a shape it does not support, else the launch's own error. Zero rows are no error.
// Row rule: a row of a forward output depends on its own inputs alone, bit for bit. `_backward` sums run in an order
// that depends on the shapes alone, without floating-point atomics.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

struct __nv_bfloat16;

namespace tandem::cuda {

using bf16 = ::__nv_bfloat16;

}  // namespace tandem::cuda
