// From the keys of `tandem sft` and `tandem reward-model` to what each part asks for. Pure functions.
#pragma once

#include "config/tuning_config.h"
#include "data/tuning_set.h"
#include "engine/tuner.h"

namespace tandem {

TuningSetOptions tuning_set_options(const TuningConfig& config, bool pairs, bool training);
// All but max_length, which is the data's.
TunerOptions tuner_options(const TuningConfig& config, size_t samples_per_row, int64_t total_steps);

}  // namespace tandem
