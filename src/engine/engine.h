// One model that generates and trains: the same weights, decoder and kernels in both phases, so the log-prob a token
// was drawn with is, bit for bit, the one its update starts from, and switching phases moves nothing. Not thread-safe:
// one verb at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "data/trajectory_store.h"
#include "engine/model_state.h"
#include "model/decoder.h"
#include "model/lora.h"
#include "observe/gpu_kernels.h"
#include "observe/metrics.h"
#include "observe/trace.h"
#include "rollout/generator.h"
#include "train/rollout_correction.h"
#include "train/trainer.h"

namespace tandem {

class FullyShardedModel;
class Communicator;
class ModelParts;
class SharedMemory;
class Team;
enum class Order : uint8_t;
struct DrawTask;

// Samples of an interrupted run, which need not be drawn again. `greedy`: remax's baselines. Validation is not among
// them. All may be empty.
struct DrawnSamples {
  std::function<TrajectoryPtr(bool greedy, const PromptPtr& prompt, uint32_t sample_index, uint64_t policy_version)>
      recall;                                                     // null: draw it
  std::function<void(bool greedy, const TrajectoryPtr&)> record;  // each response as soon as it is finished
};

struct EngineOptions {
  std::filesystem::path model_path;
  LoraOptions lora;
  at::Device device = at::kCPU;
  int64_t frozen_parameters = 0;  // of other models on the same GPU, which only compute
  int64_t trained_beside = 0;     // parameters of those that train (a critic)
  int state_parts = 0;            // among so many ranks the training state is spread; 0: one rank has all
  // On the CPU: the weights are read when the team is joined, by each rank the part that it trains.
  bool read_on_joining = false;
  double gpu_memory_utilization = 0;  // share of a GPU that weights, cache and activations may take; 0: as given below
  int64_t max_model_len = 1024;       // prompt and response together
  SchedulerOptions scheduler;
  bool prefix_caching = true;
  int64_t kv_cache_bytes = int64_t{1} << 30;
  SamplingParams sampling, validation_sampling;
  int64_t num_samples = 1, num_validation_samples = 1;  // a prompt
  TrainerOptions trainer;
  OptimizerOptions optimizer;
  bool exact = true;  // numerics: the trainer computes, bit for bit, the log-probs that were sampled with
  RolloutCorrectionOptions correction;
  CheckpointContents save, load;
  std::function<void(int64_t tokens)> on_tokens;  // progress; may be empty
  // Each response as soon as it is finished, in no fixed order, so that its reward can be begun; may be empty.
  std::function<void(const TrajectoryPtr&)> on_finished;
  std::function<void(const GeneratorPass&)> on_pass;  // each pass of the sampling; may be empty
  std::shared_ptr<TraceSlot> trace;                   // of the steps that are traced; null: none ever is
  DrawnSamples drawn;
  std::function<void()> between_passes;  // of rollout; what it throws ends the rollout; may be empty
};

struct CorrectedBatch {
  RolloutBatch samples;  // trained_length without what was rejected
  Metrics metrics;       // rollout_corr/*
};

class Engine {
 public:
  // `tokenizer` may be null where nothing needs text; both it and `store` are shared with other roles.
  Engine(const EngineOptions& options, const Tokenizer* tokenizer, std::shared_ptr<TrajectoryStore> store);
  // With a decoder that is already made.
  Engine(EngineOptions options, std::unique_ptr<Decoder> decoder, const Tokenizer* tokenizer,
         std::shared_ptr<TrajectoryStore> store);

  ~Engine();  // a leader dismisses its team
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Several ranks as one engine: each makes an engine of the same options and joins. Rank 0 then works as ever; the
  // others follow() it until it is gone, which ends them with a CommunicationError unless it was destroyed in order.
  void join_team(std::shared_ptr<Team> team);
  void follow();

  // Draws num_samples responses a prompt; samples come back prompt by prompt, group numbers counting them.
  RolloutBatch generate(const std::vector<PromptPtr>& prompts);
  RolloutBatch generate_validation(const std::vector<PromptPtr>& prompts);

  // remax: one greedy response a prompt.
  RolloutBatch generate_greedy(const std::vector<PromptPtr>& prompts);

  // Rollout correction: sets old_logprobs, importance_weights and mask of each sample's record. Samples that the
  // present weights drew have old_logprobs equal to those of the sampling, so that nothing is computed for them.
  CorrectedBatch correct_rollout(const RolloutBatch& batch);

  // optimal_token_baseline: sets sum_squared_probs of each sample's record, by one forward pass.
  RolloutBatch compute_squared_probs(const RolloutBatch& batch);

  // One update on samples whose advantages are set; the policy version grows by one. Samples of a prompt are
  // neighbours.
  Metrics update_policy(const RolloutBatch& batch);

  // actor/huggingface (fp32 weights, config; other programs load it) or actor/lora_adapter, actor/optim.safetensors,
  // actor/extra_state.json. load() restores what it is told to; with everything, bit for bit.
  void save(const std::filesystem::path& folder);
  void load(const std::filesystem::path& folder);

  // The same in memory: a copy is taken between verbs, and any thread may write it to a folder while training goes on.
  // Of several ranks each fills in its part, in memory that outlives them and is no layout's: any ranks restore it.
  void copy_state(ModelStateCopy& into);
  uint64_t state_bytes() const;  // what a copy takes
  void restore(const ModelStateCopy& copy);
  void save_copy(const std::filesystem::path& folder, const ModelStateCopy& copy, WritePace* pace) const;

  // Of the weights that several ranks have last read from a folder, each its part.
  struct Loading {
    int64_t own_bytes = 0, all_bytes = 0;  // this rank's, all ranks'
    double seconds = 0;                    // until the last had them
  };
  const Loading& loading() const { return loading_; }

  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }
  uint64_t policy_version() const { return policy_version_; }
  int64_t activation_bytes() const { return options_.trainer.activation_bytes; }
  Metrics take_generation();  // of everything drawn since the last call, validation left out; of a leader
                              // perf/controller_mb: what it told its ranks

  // Between them the other ranks record a step beside this one's `recorder`, which gets what they have and the kernels
  // of this rank's GPU at the end. Needs options.trace.
  void begin_trace(const TraceRecorder& recorder);
  void end_trace(TraceRecorder& recorder);

 private:
  // Takes what is known and has the rest drawn, by all ranks. `drawn`: null in validation.
  RolloutBatch rollout(Order order, const std::vector<PromptPtr>& prompts, const SamplingParams& sampling,
                       int64_t num_samples, const DrawnSamples* drawn);
  // By all ranks; the leader gets everybody's, in no fixed order. `record` may be empty.
  using RecordDrawn = std::function<void(const TrajectoryPtr&)>;
  std::vector<TrajectoryPtr> draw(const std::vector<DrawTask>& tasks, const SamplingParams& sampling,
                                  const RecordDrawn& record = {});
  std::vector<TrajectoryPtr> draw_here(const std::vector<DrawTask>& tasks, const SamplingParams& sampling,
                                       const RecordDrawn& record);
  void tell_finished(const TrajectoryPtr& trajectory) const;  // tells whoever wants to know
  RolloutBatch store(const std::vector<PromptPtr>& prompts, std::vector<TrajectoryPtr> drawn, int64_t num_samples);
  SamplingParams greedy_sampling() const;
  UpdateStats train(const std::vector<TrainingSample>& samples);
  void follow_trace(const std::string& payload);
  void give_trace();
  void trace_kernels();
  void add_kernels(TraceRecorder& recorder);
  std::unique_ptr<Optimizer> new_optimizer();
  // Each rank's share of copying, restoring and loading; all ranks call them together.
  void copy_part(const SharedMemory& memory);
  void restore_part(const SharedMemory& memory, bool has_optimizer, int64_t optimizer_steps, uint64_t version);
  void load_part(const std::filesystem::path& folder);
  void follow_restore(const std::string& notice);
  void read_own_weights(const std::filesystem::path& folder);
  DecoderWeights& own_part();  // what this rank trains
  void enter_training();
  void begin_new_part(), own_part_changed();
  void tell_update(const std::vector<TrainingSample>& samples);
  bool leads() const;
  const ModelConfig& whole_config() const;  // of the model, of which tensor parallelism leaves a rank a part
  void enter_rollout();

  EngineOptions options_;
  const Tokenizer* tokenizer_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Decoder> decoder_;
  std::shared_ptr<Team> team_;                   // null: one rank
  std::unique_ptr<Communicator> drawing_ranks_;  // prompts are dealt out among these
  std::unique_ptr<Communicator> data_ranks_;     // those that have the same part of every product, and stage
  std::unique_ptr<TensorSplit> split_;
  std::unique_ptr<SequenceSplit> sequences_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<FullyShardedModel> sharded_;  // of the pipeline's stage where there is one
  std::unique_ptr<ModelParts> parts_;           // null: one rank
  std::unique_ptr<Optimizer> optimizer_;        // of this rank's part; made by the first update, or by load()
  uint64_t policy_version_ = 0;
  Loading loading_;
  GeneratorStats generation_;
  SequenceWork drawn_work_;                                            // of generation_
  std::optional<GpuKernelTrace> kernels_;                              // while a step is traced
  std::map<std::pair<uint64_t, uint32_t>, TrajectoryPtr> drawn_here_;  // DrawnHere, of a rank that follows
  std::unordered_map<const Trajectory*, int32_t> owners_;              // of a step: ranks that have what they drew
};

// ConfigError where the model was made for shorter sequences, or has a shape that the device's kernels do not take.
void check_model(const ModelConfig& config, const std::filesystem::path& folder, int64_t max_model_len,
                 at::Device device);

// Weights in the type and place that computes: fp32 on the CPU, bf16 on a GPU, where `training` keeps the given values
// of what is trained as masters. `device` comes from kernels::choose_device.
DecoderWeights placed_weights(DecoderWeights weights, at::Device device, bool training);

// Where a folder's values are all bf16, it cannot be known what they were rounded from: their masters, if there are
// any, are spread over what rounds to them.
void spread_masters(DecoderWeights& weights, const WeightFolder& files);

// A decoder with its weights read from a Hugging Face folder, and adapters where they are asked for. ConfigError for a
// shape that the GPU's kernels do not take.
std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& folder, int64_t max_model_len,
                                      at::Device device = at::kCPU, bool training = false,
                                      const LoraOptions& lora = {});

}  // namespace tandem
