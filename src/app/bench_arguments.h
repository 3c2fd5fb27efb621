// What `tandem bench` is asked for.
#pragma once

#include <algorithm>
#include <string>

#include "app/ranks.h"

namespace tandem {

struct BenchArguments {
  std::string what, model, device = "cpu";
  int64_t prompts = 16, samples = 8, prompt_tokens = 128, new_tokens = 64, repeats = 1, micro_tokens = 32768;
  int64_t kv_cache_mb = 2048, batched_tokens = 16384, activation_mb = 65536, threads = 0;
  int ranks = 0, replicas = 1, timeout = 600;
  bool verify = false, weak = false, ragged = false;
  RankAddress address;

  Layout layout() const { return {.dp_replicate = replicas, .dp_shard = std::max(1, ranks) / replicas}; }
  bool leads() const { return address.rank == 0; }
};

}  // namespace tandem
