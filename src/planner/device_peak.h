// What GPUs can reach, by their names.
#pragma once

#include <optional>
#include <string_view>

namespace tandem {

// Dense bf16 products with fp32 sums in TFLOP/s, as the maker's data sheets say of a GPU of this name ("NVIDIA H200");
// nothing for one that is not known.
std::optional<double> known_peak_tflops(std::string_view gpu_name);

}  // namespace tandem
