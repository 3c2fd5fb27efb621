// What a configuration says of ranks and of losing them, checked.
#pragma once

#include "config/checker.h"
#include "config/config.h"

namespace tandem {

void check_ranks(ConfigChecker<Config>& check, const Config& config);
void check_elasticity(ConfigChecker<Config>& check, const Config& config);
void check_pools(ConfigChecker<Config>& check, const Config& config);

}  // namespace tandem
