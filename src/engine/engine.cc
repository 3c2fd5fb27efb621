#include "engine/engine.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "engine/memory_plan.h"
#include "engine/model_parts.h"
#include "engine/team.h"
#include "engine/wire.h"
#include "model/flops.h"
#include "model/sequence_split.h"
#include "model/tensor_split.h"
#include "train/fsdp.h"
#include "train/pipeline.h"

namespace tandem {
namespace {

void check_gpu_shapes(const ModelConfig& c) {
  const auto require = [](bool fits, const char* what) {
    if (!fits)
      throw ConfigError(std::string("the GPU's kernels do not take this model: ") + what + "; set trainer.device=cpu");
  };
  require(c.head_dim == 64 || c.head_dim == 128, "head_dim must be 64 or 128");
  require(c.num_attention_heads / c.num_key_value_heads <= 8, "at most 8 query heads may share a key head");
  require(c.hidden_size % 8 == 0 && c.hidden_size <= 8192, "hidden_size must be a multiple of 8 up to 8192");
  require(c.intermediate_size % 8 == 0, "intermediate_size must be a multiple of 8");
  require(c.value_head || (c.vocab_size % 4 == 0 && c.vocab_size <= 262144),
          "vocab_size must be a multiple of 4 up to 262144");
}

void check_gpu_adapters(const DecoderWeights& weights) {
  const int64_t rank = first_adapter(weights)->a_RE.size(0);
  if (rank % 8 != 0)
    throw ConfigError("lora_rank=" + std::to_string(rank) +
                      ": the GPU's products take multiples of 8; use one, or trainer.device=cpu");
}

std::optional<Spread> spread_of(const DecoderWeights& weights, int parts) {
  if (parts == 0) return std::nullopt;
  DecoderWeights outside = weights;
  outside.layers.clear();
  const ParameterCounts all = count_parameters(weights), apart = count_parameters(outside);
  return Spread{parts, apart.trained, (all.trained - apart.trained) / static_cast<int64_t>(weights.layers.size())};
}

// What the requests can use at most: every prompt once, every response in full.
int64_t useful_blocks(const std::vector<DrawTask>& tasks, const SamplingParams& sampling) {
  int64_t blocks = 0;
  for (const DrawTask& task : tasks) {
    const auto length = static_cast<int64_t>(task.prompt->token_ids.size());
    const auto samples = static_cast<int64_t>(task.samples.size());
    blocks += length / kernels::kKvBlock + 1 + samples * (sampling.max_tokens / kernels::kKvBlock + 2);
  }
  return blocks;
}

}  // namespace

void check_model(const ModelConfig& config, const std::filesystem::path& folder, int64_t max_model_len,
                 at::Device device) {
  if (!device.is_cpu()) check_gpu_shapes(config);
  if (max_model_len > config.max_position_embeddings)
    throw ConfigError(
        "prompt and response together may have " + std::to_string(max_model_len) + " tokens, but " + folder.string() +
        " was made for " + std::to_string(config.max_position_embeddings) +
        " (max_position_embeddings); lower data.max_prompt_length or data.max_response_length, for sft and "
        "reward-model data.max_length");
}

DecoderWeights placed_weights(DecoderWeights weights, at::Device device, bool training) {
  if (device.is_cpu()) return weights;
  std::shared_ptr<DecoderWeights> exact;
  if (training)
    exact = std::make_shared<DecoderWeights>(converted(trained(weights), at::device(device).dtype(at::kFloat)));
  weights = converted(weights, at::device(device).dtype(at::kBFloat16));
  weights.masters = std::move(exact);
  return weights;
}

namespace {

bool all_bf16(const WeightFolder& files) {
  return std::ranges::all_of(files.names(),
                             [&](const std::string& name) { return files.get(name).dtype == DType::kBF16; });
}

// Straight to where they compute, in the type in which all of them are exact.
DecoderWeights read_weights(const WeightFolder& files, const ModelConfig& config, at::Device device, bool training) {
  const bool single = device.is_cpu() || (training && !all_bf16(files));
  DecoderWeights weights = empty_weights(config, at::device(device).dtype(single ? at::kFloat : at::kBFloat16));
  load_weights(files, config, weights);
  weights = placed_weights(std::move(weights), device, training);
  spread_masters(weights, files);
  return weights;
}

}  // namespace

void spread_masters(DecoderWeights& weights, const WeightFolder& files) {
  if (!weights.masters || !all_bf16(files)) return;
  uint64_t key = 0;
  for (NamedTensor& parameter : parameters(*weights.masters)) kernels::spread_rounded(parameter.tensor, key++);
}

std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& folder, int64_t max_model_len, at::Device device,
                                      bool training, const LoraOptions& lora) {
  ModelConfig config = load_model_config(folder);
  check_model(config, folder, max_model_len, device);
  const WeightFolder files(folder);
  check_tensors(config, files);  // before memory is asked for
  DecoderWeights weights = read_weights(files, config, device, training && !lora.enabled());
  if (lora.enabled()) {
    attach_adapters(weights, make_adapters(config, lora));
    if (!device.is_cpu()) check_gpu_adapters(weights);
    weights = placed_weights(std::move(weights), device, training);
  }
  return std::make_unique<Decoder>(std::move(config), std::move(weights), max_model_len);
}

namespace {

// Memory that nobody has written to takes none.
std::unique_ptr<Decoder> unread_decoder(const EngineOptions& options) {
  ModelConfig config = load_model_config(options.model_path);
  check_model(config, options.model_path, options.max_model_len, options.device);
  check_tensors(config, WeightFolder(options.model_path));
  DecoderWeights weights = empty_weights(config);
  return std::make_unique<Decoder>(std::move(config), std::move(weights), options.max_model_len);
}

std::unique_ptr<Decoder> first_decoder(const EngineOptions& options) {
  if (options.read_on_joining) return unread_decoder(options);
  return load_decoder(options.model_path, options.max_model_len, options.device, true, options.lora);
}

}  // namespace

Engine::Engine(const EngineOptions& options, const Tokenizer* tokenizer, std::shared_ptr<TrajectoryStore> store)
    : Engine(options, first_decoder(options), tokenizer, std::move(store)) {}

Engine::Engine(EngineOptions options, std::unique_ptr<Decoder> decoder, const Tokenizer* tokenizer,
               std::shared_ptr<TrajectoryStore> store)
    : options_(std::move(options)), tokenizer_(tokenizer), store_(std::move(store)), decoder_(std::move(decoder)) {
  validate(options_.sampling);
  validate(options_.validation_sampling);
  if (options_.gpu_memory_utilization > 0 && decoder_->on_device()) {
    const ParameterCounts counts = count_parameters(decoder_->weights());
    const MemoryPlan plan = plan_memory(
        counts.trained + options_.trained_beside, kernels::device_memory(decoder_->weights().embed_VE).total,
        options_.gpu_memory_utilization, kWorkspaceBytes, counts.frozen + options_.frozen_parameters, kUtilizationKey,
        spread_of(decoder_->weights(), options_.state_parts));
    options_.kv_cache_bytes = plan.kv_cache_bytes;
    options_.trainer.activation_bytes = plan.activation_bytes;
  }
  plan_kv_blocks(decoder_->config(), options_.kv_cache_bytes, options_.max_model_len, 0,
                 decoder_->value_bytes());  // refuses what cannot fit
}

RolloutBatch Engine::generate(const std::vector<PromptPtr>& prompts) {
  return rollout(Order::kGenerate, prompts, options_.sampling, options_.num_samples, &options_.drawn);
}

RolloutBatch Engine::generate_validation(const std::vector<PromptPtr>& prompts) {
  const GeneratorStats kept = generation_;  // a step's count leaves validation out
  const SequenceWork kept_work = drawn_work_;
  RolloutBatch batch = rollout(Order::kGenerateValidation, prompts, options_.validation_sampling,
                               options_.num_validation_samples, nullptr);
  generation_ = kept, drawn_work_ = kept_work;
  return batch;
}

SamplingParams Engine::greedy_sampling() const {
  SamplingParams greedy = options_.sampling;
  greedy.temperature = 0;
  return greedy;
}

RolloutBatch Engine::generate_greedy(const std::vector<PromptPtr>& prompts) {
  return rollout(Order::kGenerateGreedy, prompts, greedy_sampling(), 1, &options_.drawn);
}

void Engine::tell_finished(const TrajectoryPtr& trajectory) const {
  if (options_.on_tokens) options_.on_tokens(static_cast<int64_t>(trajectory->response_ids.size()));
  if (options_.on_finished) options_.on_finished(trajectory);
}

RolloutBatch Engine::rollout(Order order, const std::vector<PromptPtr>& prompts, const SamplingParams& sampling,
                             int64_t num_samples, const DrawnSamples* drawn) {
  const bool greedy = order == Order::kGenerateGreedy;
  std::vector<TrajectoryPtr> all;
  std::vector<DrawTask> missing;
  for (const PromptPtr& prompt : prompts) {
    DrawTask task{prompt, {}};
    for (uint32_t i = 0; i < static_cast<uint32_t>(num_samples); ++i) {
      TrajectoryPtr known;
      if (drawn != nullptr && drawn->recall) known = drawn->recall(greedy, prompt, i, policy_version_);
      if (known) {
        tell_finished(known);
        all.push_back(std::move(known));
      } else {
        task.samples.push_back(i);
      }
    }
    if (!task.samples.empty()) missing.push_back(std::move(task));
  }
  RecordDrawn record;
  if (drawn != nullptr && drawn->record)
    record = [&](const TrajectoryPtr& trajectory) { drawn->record(greedy, trajectory); };
  if (leads()) {
    std::string payload = encode_tasks(missing);
    if (order == Order::kGenerate) {
      const bool begins = store_->size() == 0;  // a step's first rollout: what was drawn before is of no more use
      if (begins) owners_.clear();
      payload.insert(payload.begin(), static_cast<char>(begins));
    }
    team_->tell(order, payload);
  }
  std::set<const Prompt*> computed;
  for (TrajectoryPtr& trajectory : draw(missing, sampling, record)) {
    const Prompt* prompt = trajectory->prompt.get();
    drawn_work_ +=
        work_of_sample(static_cast<double>(prompt->token_ids.size()),
                       static_cast<double>(trajectory->response_ids.size()), !computed.insert(prompt).second);
    all.push_back(std::move(trajectory));
  }
  release_freed_memory();  // the cache of keys and values
  return store(prompts, std::move(all), num_samples);
}

std::vector<TrajectoryPtr> Engine::draw_here(const std::vector<DrawTask>& tasks, const SamplingParams& sampling,
                                             const RecordDrawn& record) {
  if (tasks.empty()) return {};
  GeneratorOptions options;
  options.scheduler = options_.scheduler;
  options.prefix_caching = options_.prefix_caching;
  options.on_pass = options_.on_pass;
  options.max_model_len = options_.max_model_len;
  options.num_drawable = decoder_->config().vocab_size;
  if (tokenizer_ != nullptr) options.num_drawable = std::min<int64_t>(options.num_drawable, tokenizer_->vocab_size());
  options.num_blocks = plan_kv_blocks(decoder_->config(), options_.kv_cache_bytes, options_.max_model_len,
                                      useful_blocks(tasks, sampling), decoder_->value_bytes());
  std::vector<TrajectoryPtr> drawn;
  Generator generator(*decoder_, options, tokenizer_, [&](TrajectoryPtr trajectory, const std::string&) {
    if (record) record(trajectory);
    tell_finished(trajectory);
    drawn.push_back(std::move(trajectory));
  });
  for (const DrawTask& task : tasks)
    generator.add(std::make_shared<GenerationRequest>(GenerationRequest{
        task.prompt, sampling, static_cast<uint32_t>(task.samples.size()), policy_version_, {}, task.samples}));
  while (generator.step())
    if (options_.between_passes) options_.between_passes();
  generation_ += generator.stats();
  return drawn;
}

RolloutBatch Engine::store(const std::vector<PromptPtr>& prompts, std::vector<TrajectoryPtr> drawn,
                           int64_t num_samples) {
  // Responses finish in any order; each has its place by prompt and sample.
  std::vector<TrajectoryPtr> finished(prompts.size() * static_cast<size_t>(num_samples));
  std::unordered_map<const Prompt*, size_t> place;
  for (size_t i = 0; i < prompts.size(); ++i) place.emplace(prompts[i].get(), i);
  check(place.size() == prompts.size(), "a prompt stands in the batch twice");
  for (TrajectoryPtr& t : drawn) {
    const size_t i = place.at(t->prompt.get()) * static_cast<size_t>(num_samples) + t->sample_index;
    finished[i] = std::move(t);
  }
  RolloutBatch batch;
  for (size_t i = 0; i < finished.size(); ++i) {
    const TrajectoryPtr& t = finished[i];
    check(t != nullptr, "a response is missing");
    Sample sample;
    sample.prompt_id = t->prompt->id;
    sample.sample_index = t->sample_index;
    sample.group = static_cast<uint32_t>(i / static_cast<size_t>(num_samples));
    sample.prompt_length = static_cast<uint32_t>(t->prompt->token_ids.size());
    sample.response_length = static_cast<uint32_t>(t->response_ids.size());
    sample.trained_length = trained_length(token_mask(*t));
    sample.stop_reason = t->stop_reason;
    sample.mean_entropy = t->mean_entropy;
    sample.handle = store_->put(t);
    batch.push_back(sample);
  }
  return batch;
}

Metrics Engine::take_generation() {
  const GeneratorStats stats = std::exchange(generation_, {});
  Metrics metrics;
  if (leads()) metrics.set("perf/controller_mb", static_cast<double>(team_->take_order_bytes()) / 1e6);
  metrics.set("rollout/passes", static_cast<double>(stats.num_passes));
  metrics.set("rollout/computed_tokens", static_cast<double>(stats.num_computed_tokens));
  metrics.set("rollout/cached_tokens", static_cast<double>(stats.num_cached_tokens));
  metrics.set("rollout/preemptions", static_cast<double>(stats.num_preempted));
  metrics.set("rollout/tflop", forward_flops(whole_config(), std::exchange(drawn_work_, {})) / 1e12);
  return metrics;
}

Metrics Engine::update_policy(const RolloutBatch& batch) {
  std::vector<TrainingSample> samples;
  for (const Sample& sample : batch) samples.push_back(training_sample(*store_, sample));
  if (leads()) tell_update(samples);
  const UpdateStats stats = train(samples);

  Metrics metrics;
  metrics.set("actor/pg_loss", stats.pg_loss);
  metrics.set("actor/loss", stats.loss);
  if (options_.trainer.use_kl_loss) {
    metrics.set("actor/kl_loss", stats.kl_loss);
    metrics.set("actor/kl_coef", options_.trainer.kl_loss_coef);
  }
  if (options_.trainer.entropy_coeff != 0) metrics.set("actor/entropy_loss", stats.entropy_loss);
  metrics.set("actor/pg_clipfrac", stats.clip_fraction);
  metrics.set("actor/pg_clipfrac_lower", stats.clip_fraction_lower);
  metrics.set("actor/ppo_kl", stats.ppo_kl);
  metrics.set("actor/grad_norm", stats.grad_norm);
  metrics.set("actor/lr", stats.lr);
  metrics.set("actor/optimizer_steps", static_cast<double>(stats.num_optimizer_steps));
  metrics.set("actor/skipped_samples", static_cast<double>(stats.num_skipped_samples));
  metrics.set("actor/update_tflop",
              training_flops(whole_config(), stats.work, has_adapters(decoder_->weights())) / 1e12);
  if (team_) metrics.set("actor/rank_imbalance", stats.imbalance);
  if (stats.num_skipped_updates > 0)
    metrics.set("actor/skipped_updates", static_cast<double>(stats.num_skipped_updates));
  return metrics;
}

}  // namespace tandem
