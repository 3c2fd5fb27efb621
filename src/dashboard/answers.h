// What the page asks for, as JSON text. Pure functions of what the store knows; HTTP is in server.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dashboard/run_store.h"
#include "dashboard/samples_index.h"

namespace tandem {

// The text of each token id by the tokenizer of the model that a run's configuration names; nothing where that cannot
// be read. Thread-safe.
using TokenTexts =
    std::function<std::optional<std::vector<std::string>>(const std::string& model, const std::vector<int32_t>& ids)>;

// {"version": the store's, "roots": [...], "runs": [...]}.
std::string runs_answer(const RunStore& store);

struct SeriesQuery {
  std::vector<std::string> runs, metrics;
  std::optional<std::vector<std::string>> bands;  // the runs whose least and greatest values are wanted; absent: all
  size_t pieces = 300;
  double smoothing = 0;
  bool by_time = false;              // x is seconds of training, else steps
  std::optional<double> begin, end;  // of x; absent: all there is
};
// {metric: {"x": [...], "runs": {id: {"low": [...], "high": [...], "smooth": [...]}}}}; null where a piece is empty.
// Most of the bytes are bands, so that only those asked for are there.
std::string series_answer(const RunStore& store, const SeriesQuery& query);

// The rows that have a metric of this prefix, the newest `most` of them: {"steps": [...], "columns": {name: [...]}}.
std::string rows_answer(const RecordedRun& run, const std::string& prefix, size_t most);

std::string samples_answer(RecordedRun& run, const SampleFilter& filter, size_t first, size_t count);
// The line itself, with the texts of its tokens; nothing when there is no such sample.
std::optional<std::string> sample_answer(RecordedRun& run, size_t index, const TokenTexts& token_texts);

std::string config_answer(const RecordedRun& run);
std::string log_answer(const RecordedRun& run);

// Prometheus' text format, 0.0.4: the newest value of every metric, tandem_actor_pg_loss{run="..."} for actor/pg_loss.
std::string prometheus_answer(const RunStore& store);

}  // namespace tandem
