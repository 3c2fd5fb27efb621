// A mini-batch that could not be learnt from, in a folder that runs again: samples.safetensors (every vector of every
// sample, as "3.response_ids"), huggingface/ (the weights that met it, fp32) and dump.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "train/batching.h"

namespace tandem {

struct UpdateDump {
  std::string role;  // actor, critic
  int64_t step = 0;  // of the run, counted from 1
  double loss = 0, grad_norm = 0;
  int64_t optimizer_steps = 0;
  bool unchanged = false;  // no optimizer step since the samples were drawn
  std::vector<TrainingSample> samples;
};

// `source_model`: the folder whose tokenizer files go along. The folder appears whole or not at all.
void write_dump(const std::filesystem::path& folder, const std::string& role, int64_t step,
                const NonFiniteUpdate& update, const Decoder& decoder, const std::filesystem::path& source_model);

// IoError for a folder that is none.
UpdateDump read_dump(const std::filesystem::path& folder);

}  // namespace tandem
