// actor_rollout_ref.model.* and actor_rollout_ref.actor.*: the policy and how it is updated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct PolicyModelConfig {
  std::string path;
  bool enable_gradient_checkpointing = true;
  int64_t lora_rank = 0;
  int64_t lora_alpha = 16;
  std::vector<std::string> target_modules = {"all-linear"};
  std::vector<std::string> exclude_modules;
  std::optional<std::string> lora_adapter_path;

  bool uses_lora() const { return lora_rank > 0 || lora_adapter_path; }

  template <class V>
  void fields(V&& v) {
    v("path", path,
      "folder of the model in Hugging Face layout (config.json, *.safetensors, tokenizer.json); required");
    v("enable_gradient_checkpointing", enable_gradient_checkpointing,
      "recompute each block in the backward pass: less memory, about a third more compute");
    v("lora_rank", lora_rank,
      "train adapters of this rank and leave the model as it is (docs/lora.md); 0: train it all");
    v("lora_alpha", lora_alpha, "lora: an adapter's output is scaled by lora_alpha / lora_rank");
    v("target_modules", target_modules,
      "lora: projections that get an adapter, of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; "
      "all-linear: all of them");
    v("exclude_modules", exclude_modules, "lora: projections that are left out");
    v("lora_adapter_path", lora_adapter_path,
      "lora: folder of an adapter (PEFT's layout) to start from; its own rank, alpha and projections hold");
  }
};

struct OptimConfig {  // AdamW
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  double weight_decay = 0.01;
  double clip_grad = 1.0;
  int64_t lr_warmup_steps = -1;
  double lr_warmup_steps_ratio = 0.0;
  std::string lr_scheduler_type = "constant";
  double min_lr_ratio = 0.0;
  double num_cycles = 0.5;

  template <class V>
  void fields(V&& v) {
    v("lr", lr, "peak learning rate of AdamW");
    v("betas", betas, "decay of AdamW's first and second moment");
    v("weight_decay", weight_decay, "decoupled weight decay");
    v("clip_grad", clip_grad, "largest gradient norm; longer gradients are scaled down to it");
    v("lr_warmup_steps", lr_warmup_steps, "optimizer steps of linear warm-up; -1: lr_warmup_steps_ratio decides");
    v("lr_warmup_steps_ratio", lr_warmup_steps_ratio, "warm-up as a share of all optimizer steps");
    v("lr_scheduler_type", lr_scheduler_type, "course of the rate after the warm-up", {"constant", "cosine"});
    v("min_lr_ratio", min_lr_ratio, "cosine: lowest rate as a share of lr");
    v("num_cycles", num_cycles, "cosine: periods until the last step; 0.5 ends at the lowest rate");
  }
};

struct PolicyLossConfig {
  std::string loss_mode = "vanilla";
  double clip_cov_ratio = 0.0002;
  double clip_cov_lb = 1.0;
  double clip_cov_ub = 5.0;
  double kl_cov_ratio = 0.0002;
  double ppo_kl_coef = 0.1;
  std::optional<double> dro_beta;

  template <class V>
  void fields(V&& v) {
    v("loss_mode", loss_mode,
      "policy loss (docs/algorithms.md); vanilla is PPO's, clipped on both sides and dual-clipped; gspo, sapo and "
      "geo_mean go with loss_agg_mode=seq-mean-token-mean, which they set unless another is set",
      {"vanilla", "gspo", "sapo", "cispo", "gpg", "geo_mean", "clip_cov", "kl_cov", "dppo_tv", "dppo_kl", "dro",
       "reinforce"});
    v("clip_cov_ratio", clip_cov_ratio, "clip_cov: share of a mini-batch's tokens that drop out");
    v("clip_cov_lb", clip_cov_lb, "clip_cov: they are drawn among tokens of a covariance above this");
    v("clip_cov_ub", clip_cov_ub, "clip_cov: and below this");
    v("kl_cov_ratio", kl_cov_ratio, "kl_cov: share of a mini-batch's tokens, of greatest covariance, with a KL term");
    v("ppo_kl_coef", ppo_kl_coef, "kl_cov: weight of that term");
    v("dro_beta", dro_beta, "dro: weight of the squared log-ratio; required there");
  }
};

struct CheckpointConfig {
  std::vector<std::string> save_contents = {"model", "optimizer", "extra"};
  std::vector<std::string> load_contents = {"model", "optimizer", "extra"};

  template <class V>
  void fields(V&& v) {
    v("save_contents", save_contents,
      "what a checkpoint holds; hf_model adds the weights in Hugging Face layout (with lora those of the merged "
      "model); resuming exactly needs the other "
      "three",
      {"model", "optimizer", "extra", "hf_model"});
    v("load_contents", load_contents, "what is restored on resume", {"model", "optimizer", "extra", "hf_model"});
  }
};

struct FsdpConfig {
  int64_t fsdp_size = -1;

  template <class V>
  void fields(V&& v) {
    v("fsdp_size", fsdp_size,
      "data-parallel ranks that share one copy of parameters, gradients and optimizer state; the groups of so many "
      "ranks each keep "
      "the whole; -1: all ranks");
  }
};

struct MegatronConfig {
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  std::optional<int64_t> virtual_pipeline_model_parallel_size;
  int64_t context_parallel_size = 1;

  template <class V>
  void fields(V&& v) {
    v("tensor_model_parallel_size", tensor_model_parallel_size,
      "strategy=megatron: ranks that share every product, in training and in rollout "
      "(rollout.tensor_model_parallel_size must be the same); the groups of so many share the data");
    v("pipeline_model_parallel_size", pipeline_model_parallel_size,
      "strategy=megatron: ranks that each train some blocks, and generate with all of them; the pipelines of so many "
      "share the data");
    v("virtual_pipeline_model_parallel_size", virtual_pipeline_model_parallel_size,
      "strategy=megatron: parts of a pipeline's stage, dealt out in turn, so that ranks wait less (interleaved 1F1B); "
      "null: one");
    v("context_parallel_size", context_parallel_size,
      "strategy=megatron: ranks that share each sequence in training, as ulysses_sequence_parallel_size has it");
  }
};

struct ActorConfig {
  std::string strategy = "fsdp";
  int64_t ppo_mini_batch_size = 256;
  int64_t ppo_epochs = 1;
  bool shuffle = false;
  int64_t data_loader_seed = 42;
  bool use_dynamic_bsz = true;
  std::optional<int64_t> ppo_max_token_len_per_gpu;
  std::optional<int64_t> ppo_micro_batch_size_per_gpu;
  int64_t ulysses_sequence_parallel_size = 1;
  double clip_ratio = 0.2;
  std::optional<double> clip_ratio_low;
  std::optional<double> clip_ratio_high;
  double clip_ratio_c = 3.0;
  double tau_pos = 1.0;
  double tau_neg = 1.05;
  std::string loss_agg_mode = "token-mean";
  std::optional<double> loss_scale_factor;
  double entropy_coeff = 0.0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  std::string kl_loss_type = "low_var_kl";
  PolicyLossConfig policy_loss;
  OptimConfig optim;
  CheckpointConfig checkpoint;
  FsdpConfig fsdp_config;
  MegatronConfig megatron;

  template <class V>
  void fields(V&& v) {
    v("strategy", strategy,
      "how several ranks share the work: fsdp (or fsdp2, which here are one), or megatron: tensor parallelism and "
      "pipelines");
    v("ppo_mini_batch_size", ppo_mini_batch_size, "prompts an optimizer step (samples: times rollout.n)");
    v("ppo_epochs", ppo_epochs, "passes over a step's samples");
    v("shuffle", shuffle, "draw new mini-batches in each pass");
    v("data_loader_seed", data_loader_seed, "seed of that draw");
    v("use_dynamic_bsz", use_dynamic_bsz,
      "fill micro-batches up to ppo_max_token_len_per_gpu tokens; false: ppo_micro_batch_size_per_gpu samples each");
    v("ppo_max_token_len_per_gpu", ppo_max_token_len_per_gpu,
      "most tokens in a micro-batch; null: 4096 on CPU, 16384 on a GPU, at least one whole sample");
    v("ppo_micro_batch_size_per_gpu", ppo_micro_batch_size_per_gpu,
      "samples in a micro-batch; setting it turns use_dynamic_bsz off unless that is set too");
    v("ulysses_sequence_parallel_size", ulysses_sequence_parallel_size,
      "strategy=fsdp: ranks that share each sequence in training (its tokens, and around attention its heads), for "
      "responses whose activations one rank cannot hold; ppo_max_token_len_per_gpu counts a rank's part");
    v("clip_ratio", clip_ratio, "bound on the probability ratio: 1 - clip_ratio to 1 + clip_ratio");
    v("clip_ratio_low", clip_ratio_low, "lower side of that bound; null: clip_ratio");
    v("clip_ratio_high", clip_ratio_high, "upper side of that bound; null: clip_ratio");
    v("clip_ratio_c", clip_ratio_c, "dual clip: with a negative advantage a token's loss is at most this times |A|");
    v("tau_pos", tau_pos, "sapo: steepness of the gate where the advantage is positive");
    v("tau_neg", tau_neg, "sapo: the same elsewhere");
    v("loss_agg_mode", loss_agg_mode, "how token losses of a mini-batch become one number",
      {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"});
    v("loss_scale_factor", loss_scale_factor,
      "divisor of seq-mean-token-sum-norm; null: the longest response allowed, in tokens");
    v("entropy_coeff", entropy_coeff, "weight of the entropy bonus; 0 computes none");
    v("use_kl_loss", use_kl_loss,
      "add a KL term against the starting model to the loss (keeps a second model; with lora the one there is)");
    v("kl_loss_coef", kl_loss_coef, "weight of that term");
    v("kl_loss_type", kl_loss_type, "estimator of that term; a final + takes its gradient from k2",
      {"kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"});
    v("policy_loss", policy_loss, "the policy loss");
    v("optim", optim, "the optimizer (AdamW with float32 masters)");
    v("checkpoint", checkpoint, "contents of checkpoints");
    v("fsdp_config", fsdp_config, "how parameters are spread over data-parallel ranks");
    v("megatron", megatron, "how products or blocks are spread over ranks");
  }
};

}  // namespace tandem
