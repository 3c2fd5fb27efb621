// The first line is an override, the rest a YAML file; whatever they hold, only a tandem::Error may come out, and what
// loads must print and load again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/describe.h"
#include "config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const size_t line = text.find('\n');
  const std::vector<std::string> overrides = {"actor_rollout_ref.model.path=/model", std::string(text.substr(0, line))};
  const std::string_view yaml = line == std::string_view::npos ? "" : text.substr(line + 1);
  tandem::LoadedConfig loaded;
  try {
    loaded = tandem::parse_config(yaml, "fuzz.yaml", overrides);
  } catch (const tandem::Error&) {
    return 0;
  }
  tandem::describe_config(loaded.config, 1000);
  return 0;
}
