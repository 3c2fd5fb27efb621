// The ops of kernels.h, one by one, at a model's shapes.
#pragma once

#include "app/bench_arguments.h"

namespace tandem {

// A line of JSON an op: its time, and on a GPU the share of its floor, which is the larger of bytes moved and
// operations done at the ceilings of the same run. `micro_tokens` rows in training, prompts * samples in decode,
// sequences of prompt_tokens + new_tokens.
void bench_kernels(const BenchArguments& arguments);

}  // namespace tandem
