// Ops beside kernels.h for what runs beside a pass: exchanges between ranks and the sums over what they bring. Errors
// and thread-safety as there.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels {

// A point in the work that this thread has given to the device of `like`; null on the CPU, where work is done when a
// call returns.
using Mark = std::shared_ptr<const void>;
Mark mark(const at::Tensor& like);
// Runs `work`. What it gives to the device is done after `after` and beside what other threads give it, and is all done
// when this returns.
void run_beside(const at::Tensor& like, const Mark& after, const std::function<void()>& work);

// On the CPU both take this thread alone. fp32, equal sizes: to += from.
void accumulate(const at::Tensor& to, const at::Tensor& from);
void set_to_zero(const at::Tensor& tensor);

// block_squares() of many tensors at once: Σ x² of each block of kSquareBlock values, which do not depend on who has
// which blocks.
std::vector<std::vector<double>> block_squares(std::span<const at::Tensor> all);

// The peaks of device_memory() begin anew from what is held.
void reset_peak_memory(const at::Tensor& like);

}  // namespace tandem::kernels
