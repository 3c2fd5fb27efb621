// What a run says of itself when it ends.
#pragma once

#include <string>

#include "app/train_run.h"

namespace tandem {

std::string describe_run(const RunSummary& summary);

}  // namespace tandem
