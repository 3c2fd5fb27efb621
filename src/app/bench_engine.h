// What `tandem bench` times on one engine with random weights of a config.json's shape.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "app/ranks.h"
#include "engine/engine.h"

namespace tandem {

struct BenchArguments {
  std::string what, model, device = "cpu";
  int64_t prompts = 16, samples = 8, prompt_tokens = 128, new_tokens = 64, repeats = 1, micro_tokens = 32768;
  int64_t kv_cache_mb = 2048, batched_tokens = 16384, activation_mb = 65536, threads = 0;
  int ranks = 0, replicas = 1, timeout = 600;
  bool verify = false, weak = false;
  RankAddress address;

  Layout layout() const { return {.dp_replicate = replicas, .dp_shard = std::max(1, ranks) / replicas}; }
  bool leads() const { return address.rank == 0; }
};

class Bench {
 public:
  explicit Bench(const BenchArguments& arguments);
  Engine& engine() { return *engine_; }
  void rollout();
  // One micro-batch of whole sequences of their own: forward, loss and backward; on several ranks an update.
  void train();
  void step();
  // The device's log-probs and gradient of one mini-batch against the CPU's in fp32, from the same rounded weights.
  void compare() const;
  void memory() const;

 private:
  static constexpr double kGiB = 1024.0 * 1024 * 1024;
  // What the device can do at best: bytes read and written by a large copy, and a large bf16 product.
  void ceilings() const;
  struct Passes {
    std::vector<std::vector<float>> logprobs;
    DecoderWeights gradient;
  };
  Passes logprobs_and_gradient(Decoder& decoder) const;
  void summarise(const std::vector<double>& rollouts, const std::vector<double>& updates) const;
  int64_t vocab() const;
  void report(const char* name, double seconds, int64_t tokens) const;
  // The training forward's log-probs against those that rollout drew by, bit for bit.
  void verify(const RolloutBatch& batch) const;
  BenchArguments arguments_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tandem
