// One model that generates and trains: the same weights, decoder and kernels in both phases, so the log-prob a token
// was drawn with is, bit for bit, the one its update starts from, and switching phases moves nothing. Not thread-safe:
// one verb at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "data/trajectory_store.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "rollout/generator.h"
#include "train/trainer.h"

namespace tandem {

// actor.checkpoint.save_contents and load_contents of verl; weights are saved in Hugging Face layout in any case.
struct CheckpointContents {
  bool weights = true, optimizer = true, extra = true;  // extra: policy version and optimizer steps
};

struct EngineOptions {
  std::filesystem::path model_path;
  at::Device device = at::kCPU;
  int64_t max_model_len = 1024;  // prompt and response together
  SchedulerOptions scheduler;
  bool prefix_caching = true;
  int64_t kv_cache_bytes = int64_t{1} << 30;
  SamplingParams sampling, validation_sampling;
  int64_t num_samples = 1, num_validation_samples = 1;  // a prompt
  TrainerOptions trainer;
  OptimizerOptions optimizer;
  CheckpointContents save, load;
  std::function<void(int64_t tokens)> on_tokens;  // progress; may be empty
  // Each response as soon as it is finished, in no fixed order, so that its reward can be begun; may be empty.
  std::function<void(const TrajectoryPtr&)> on_finished;
};

class Engine {
 public:
  // `tokenizer` may be null where nothing needs text; both it and `store` are shared with other roles.
  Engine(EngineOptions options, const Tokenizer* tokenizer, std::shared_ptr<TrajectoryStore> store);
  // With a decoder that is already made.
  Engine(EngineOptions options, std::unique_ptr<Decoder> decoder, const Tokenizer* tokenizer,
         std::shared_ptr<TrajectoryStore> store);

  // Draws num_samples responses a prompt; samples come back prompt by prompt, group numbers counting them.
  RolloutBatch generate(const std::vector<PromptPtr>& prompts);
  RolloutBatch generate_validation(const std::vector<PromptPtr>& prompts);

  // One update on samples whose advantages are set; the policy version grows by one. Samples of a prompt are
  // neighbours.
  Metrics update_policy(const RolloutBatch& batch);

  // actor/huggingface (fp32 weights, config; other programs load it), actor/optim.safetensors, actor/extra_state.json.
  // load() restores what it is told to; with everything, bit for bit.
  void save(const std::filesystem::path& folder) const;
  void load(const std::filesystem::path& folder);

  Decoder& decoder() { return *decoder_; }
  uint64_t policy_version() const { return policy_version_; }
  Metrics last_generation() const { return generation_; }  // of the last generate()

 private:
  RolloutBatch generate_with(const std::vector<PromptPtr>& prompts, const SamplingParams& sampling,
                             int64_t num_samples);

  EngineOptions options_;
  const Tokenizer* tokenizer_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;  // made by the first update, or by load()
  uint64_t policy_version_ = 0;
  Metrics generation_;
};

// A decoder with its weights read from a Hugging Face folder: fp32 on the CPU, bf16 on a GPU.
std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& folder, int64_t max_model_len,
                                      at::Device device = at::kCPU);

}  // namespace tandem
