// actor_rollout_ref.rollout.*: how responses are sampled and how much the generator may hold at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct ValSamplingConfig {
  int64_t n = 1;
  double temperature = 0.0;
  double top_p = 1.0;
  int64_t top_k = -1;
  bool do_sample = false;

  template <class V>
  void fields(V&& v) {
    v("n", n, "responses a validation prompt");
    v("temperature", temperature, "sampling temperature; 0: always the likeliest token");
    v("top_p", top_p, "sample among the likeliest tokens that hold this much probability");
    v("top_k", top_k, "sample among this many likeliest tokens; -1: all");
    v("do_sample", do_sample, "false: always the likeliest token, whatever the temperature");
  }
};

struct RolloutConfig {
  int64_t n = 1;
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = -1;
  double min_p = 0.0;
  bool do_sample = true;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  int64_t min_tokens = 0;
  std::optional<int64_t> prompt_length;
  std::optional<int64_t> response_length;
  int64_t seed = 42;
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 8192;
  std::optional<int64_t> max_model_len;
  bool enable_chunked_prefill = true;
  bool enable_prefix_caching = true;
  int64_t block_size = 16;
  double gpu_memory_utilization = 0.5;
  int64_t kv_cache_memory_mb = 1024;
  int64_t tensor_model_parallel_size = 1;
  ValSamplingConfig val_kwargs;

  template <class V>
  void fields(V&& v) {
    v("n", n, "samples a prompt: the group whose rewards are compared; GRPO needs at least 2");
    v("temperature", temperature, "sampling temperature, also of the log-probs trained on; 0: the likeliest token");
    v("top_p", top_p, "sample among the likeliest tokens that hold this much probability");
    v("top_k", top_k, "sample among this many likeliest tokens; -1: all");
    v("min_p", min_p, "drop tokens less likely than this share of the likeliest; 0: none");
    v("do_sample", do_sample, "false: always the likeliest token, whatever the temperature");
    v("ignore_eos", ignore_eos, "go on past the end-of-sequence token, to the length limit (for benchmarks)");
    v("stop", stop, "texts that end a response; their tokens are part of it");
    v("stop_token_ids", stop_token_ids, "tokens that end a response besides the model's end-of-sequence tokens");
    v("min_tokens", min_tokens, "a response does not end before this many tokens");
    v("prompt_length", prompt_length, "most tokens of a prompt; null: data.max_prompt_length");
    v("response_length", response_length, "most tokens of a response; null: data.max_response_length");
    v("seed", seed, "seed of the sampling; a token depends on it, the step, the prompt, the sample and the position");
    v("max_num_seqs", max_num_seqs, "most sequences decoded at once");
    v("max_num_batched_tokens", max_num_batched_tokens, "most tokens in one forward pass of the generator");
    v("max_model_len", max_model_len, "most tokens of prompt and response; null: prompt_length + response_length");
    v("enable_chunked_prefill", enable_chunked_prefill, "let prompts enter in pieces beside running sequences");
    v("enable_prefix_caching", enable_prefix_caching, "compute what prompts have in common once");
    v("block_size", block_size, "tokens in one block of the key-value cache");
    v("gpu_memory_utilization", gpu_memory_utilization,
      "share of a GPU's memory the generator may use; on the CPU kv_cache_memory_mb counts");
    v("kv_cache_memory_mb", kv_cache_memory_mb, "size of the key-value cache on CPU, in MiB");
    v("tensor_model_parallel_size", tensor_model_parallel_size,
      "ranks that one copy of the generator is cut over: as many as in training");
    v("val_kwargs", val_kwargs, "sampling in validation");
  }
};

}  // namespace tandem
