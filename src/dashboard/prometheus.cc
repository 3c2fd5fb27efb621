#include <fmt/format.h>

#include <cmath>
#include <map>

#include "dashboard/answers.h"

namespace tandem {
namespace {

std::string metric_name(std::string_view name) {
  std::string out = "tandem_";
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string prometheus_answer(const RunStore& store) {
  // All samples of a name stand together, as the format asks.
  std::map<std::string, std::map<std::string, double>> by_name;
  for (const auto& run : store.runs()) {
    const RunStatus status = run->status();
    by_name["tandem_step"][run->id()] = status.last_step;
    by_name["tandem_log_warnings"][run->id()] = static_cast<double>(status.warnings);
    by_name["tandem_log_errors"][run->id()] = static_cast<double>(status.errors);
    by_name["tandem_updated_seconds"][run->id()] = static_cast<double>(status.updated);
    run->with_series([&](const RunSeries& series) {
      for (const std::string& name : series.names())
        if (const auto value = series.last(name)) by_name[metric_name(name)].emplace(run->id(), *value);
    });
  }
  std::string out;
  for (const auto& [name, values] : by_name) {
    out += fmt::format("# TYPE {} gauge\n", name);
    for (const auto& [run, value] : values)
      out += fmt::format("{}{{run=\"{}\"}} {}\n", name, label_value(run), number(value));
  }
  return out;
}

}  // namespace tandem
