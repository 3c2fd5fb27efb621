// Workers as JSON text: between a controller and who starts its processes elsewhere, and in a run's workers.json.
#pragma once

#include <string>
#include <vector>

#include "control/runtime.h"

namespace tandem {

std::string to_json(const WorkerSpec& spec);
WorkerSpec worker_spec(const std::string& json);  // check() where it is not such a text

std::string to_json(const std::vector<WorkerStatus>& workers);
std::vector<WorkerStatus> worker_states(const std::string& json);

}  // namespace tandem
