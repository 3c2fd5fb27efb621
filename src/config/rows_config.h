// What the data section of every kind of run holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/json_text.h"

namespace tandem {

struct RowsConfig {
  std::vector<std::string> train_files;
  std::vector<std::string> val_files;
  bool shuffle = true;
  std::optional<int64_t> seed;
  int64_t train_max_samples = -1;
  int64_t val_max_samples = -1;
  JsonText apply_chat_template_kwargs;

  template <class V>
  void fields(V&& v) {
    v("train_files", train_files, "files of training rows (.parquet, .json, .jsonl), concatenated in this order");
    v("val_files", val_files, "files of validation rows; [] turns validation off");
    v("shuffle", shuffle, "draw a new order of the rows each epoch; false: file order");
    v("seed", seed, "seed of that order; null: trainer.seed");
    v("train_max_samples", train_max_samples, "train on this many rows only; -1: all");
    v("val_max_samples", val_max_samples, "validate on this many rows only; -1: all");
    v("apply_chat_template_kwargs", apply_chat_template_kwargs,
      "extra variables for the chat template, e.g. {enable_thinking: false}");
  }
};

}  // namespace tandem
