#include "control/worker_json.h"

#include <nlohmann/json.hpp>

namespace tandem {

using nlohmann::json;

namespace {

json parsed(const std::string& text) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(!value.is_discarded(), "text of workers is no JSON");
  return value;
}

}  // namespace

std::string to_json(const WorkerSpec& spec) {
  return json{{"role", spec.role},
              {"device", spec.device},
              {"rank", spec.rank},
              {"program", spec.program},
              {"folder", spec.folder},
              {"arguments", spec.arguments},
              {"environment", spec.environment}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

WorkerSpec worker_spec(const std::string& text) {
  const json value = parsed(text);
  WorkerSpec spec;
  value.at("role").get_to(spec.role);
  value.at("device").get_to(spec.device);
  value.at("rank").get_to(spec.rank);
  value.at("program").get_to(spec.program);
  value.at("folder").get_to(spec.folder);
  value.at("arguments").get_to(spec.arguments);
  value.at("environment").get_to(spec.environment);
  return spec;
}

std::string to_json(const std::vector<WorkerStatus>& workers) {
  json all = json::array();
  for (const WorkerStatus& w : workers)
    all.push_back({{"role", w.role},
                   {"device", w.device},
                   {"host", w.host},
                   {"rank", w.rank},
                   {"pid", w.pid},
                   {"state", static_cast<int>(w.state)},
                   {"doing", w.doing},
                   {"doing_seconds", w.doing_seconds},
                   {"quiet_seconds", w.quiet_seconds},
                   {"ending", w.ending},
                   {"last_lines", w.last_lines}});
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<WorkerStatus> worker_states(const std::string& text) {
  std::vector<WorkerStatus> all;
  for (const json& value : parsed(text)) {
    WorkerStatus w;
    value.at("role").get_to(w.role);
    value.at("device").get_to(w.device);
    value.at("host").get_to(w.host);
    value.at("rank").get_to(w.rank);
    value.at("pid").get_to(w.pid);
    w.state = static_cast<WorkerState>(value.at("state").get<int>());
    value.at("doing").get_to(w.doing);
    value.at("doing_seconds").get_to(w.doing_seconds);
    value.at("quiet_seconds").get_to(w.quiet_seconds);
    value.at("ending").get_to(w.ending);
    value.at("last_lines").get_to(w.last_lines);
    all.push_back(std::move(w));
  }
  return all;
}

}  // namespace tandem
