// What the ranks of an engine are told to work on, for people who hold them: how much of it, of which lengths.
#pragma once

#include <string>
#include <vector>

#include "engine/sample_exchange.h"
#include "engine/wire.h"

namespace tandem {

// "2 prompts: prompt_ids[83..101], samples[4]"
std::string shapes_of(const std::vector<DrawTask>& tasks);

}  // namespace tandem
