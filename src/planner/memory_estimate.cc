#include "planner/memory_estimate.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kFloat = 4, kHalf = 2;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kCpuLibraries = 170 * kMiB;      // measured: the program, libtorch, Arrow, a tokenizer of 49k words
constexpr int64_t kKvBlock = 16;                   // tokens
constexpr int64_t kActivationBudget = 256 * kMiB;  // of a training pass on the CPU
constexpr int64_t kLogitRun = 64 * kMiB;           // logits that the head holds at once on the CPU
constexpr int64_t kGpuWorkspace = int64_t{5} << 30;
constexpr int64_t kGpuLeast = 256 * kMiB;  // of cache or activations, to be of use

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A pass's passing values of one block beside what is kept: norms, products and their gradients.
int64_t scratch_per_token(const ModelShape& m, bool backward) {
  const int64_t forward = 2 * m.hidden + m.q_size() + 2 * m.kv_size() + m.q_size() + 3 * m.intermediate;
  return backward ? forward + m.intermediate + 2 * m.hidden + m.q_size() : forward;
}

struct TrainingPass {
  int64_t tokens = 0, rows = 0;  // rows: of logits
  bool keeps_all = true;
};

TrainingPass training_pass(const ModelShape& m, const WorkloadSizes& w, int ranks) {
  const int64_t per_token = kFloat * m.activations_per_token();
  const int64_t most = std::min(w.micro_batch_tokens, std::max<int64_t>(64, kActivationBudget / per_token));
  // A prompt is computed once for all of its samples.
  const int64_t groups = std::max<int64_t>(1, w.mini_batch_samples / w.samples_per_prompt / ranks);
  const int64_t in_all = groups * (w.prompt_length + w.samples_per_prompt * w.response_length);
  const int64_t longest = w.prompt_length + w.response_length;
  TrainingPass pass;
  pass.tokens = std::min(std::max(most, longest), in_all);
  const int64_t drawn = w.samples_per_prompt * w.response_length;
  pass.rows = pass.tokens * drawn / (w.prompt_length + drawn);
  pass.keeps_all = !w.recompute || pass.tokens * per_token <= kActivationBudget;
  return pass;
}

int64_t training_activations(const ModelShape& m, const WorkloadSizes& w, int ranks) {
  const TrainingPass pass = training_pass(m, w, ranks);
  const int64_t kept =
      pass.keeps_all ? m.activations_per_token() : m.layers * m.hidden + m.activations_per_token() / m.layers;
  const int64_t rows = std::min(pass.rows, std::max<int64_t>(8, kLogitRun / (kFloat * m.vocab)));
  return kFloat * (pass.tokens * (kept + scratch_per_token(m, true)) + 2 * rows * m.vocab);  // logits, their gradient
}

int64_t rollout_activations(const ModelShape& m, const WorkloadSizes& w, int ranks) {
  const int64_t prompts = ceil_div(w.prompts, ranks);
  const int64_t tokens = std::min(w.rollout_pass_tokens, prompts * w.prompt_length);
  const int64_t rows = std::min(w.rollout_seqs, prompts * w.samples_per_prompt);
  return kFloat * (tokens * scratch_per_token(m, false) + rows * m.vocab);
}

int64_t kv_cache(const ModelShape& m, const WorkloadSizes& w, int ranks, int tp) {
  const int64_t block = kFloat * m.kv_values_per_token() * kKvBlock / tp;
  const int64_t longest = w.prompt_length + w.response_length;
  const int64_t wanted = ceil_div(w.prompts, ranks) *
                         (w.prompt_length / kKvBlock + 1 + w.samples_per_prompt * (w.response_length / kKvBlock + 2));
  return block * std::clamp(wanted, ceil_div(longest, kKvBlock), std::max<int64_t>(1, w.kv_cache_bytes / block));
}

int64_t trained(const RoleSizes& role) {
  return role.trained_parameters > 0 ? role.trained_parameters : role.model.parameters;
}

struct CpuRole {
  RoleMemory shown;
  int64_t idle = 0;                               // held while another role works, by one process
  int64_t drawing = 0, updating = 0, saving = 0;  // more than that while it works itself
};

// Fully sharded: the parts of weights and gradients stay beside what a phase gathers; the update holds two blocks and
// what stands outside the blocks.
CpuRole on_cpu(const RoleSizes& role, const WorkloadSizes& w) {
  const ModelShape& m = role.model;
  const Layout& layout = role.layout;
  const int64_t parameters = m.parameters / layout.tp;
  const int64_t whole = kFloat * parameters;
  const int shards = layout.dp_shard * layout.cp;  // ranks that share sequences have parts as any others
  const int ranks = layout.pp * layout.dp_replicate * shards;
  CpuRole out;
  out.shown.role = role.role;
  out.shown.weights = out.idle = whole;
  if (role.generates) {
    out.shown.kv_cache = kv_cache(m, w, ranks, layout.tp);
    out.drawing = out.shown.kv_cache + rollout_activations(m, w, ranks);
  }
  if (!role.trains) {
    out.updating = out.shown.activations = kFloat * w.micro_batch_tokens * scratch_per_token(m, false);
    return out;
  }
  const int64_t passing = training_activations(m, w, ranks);
  out.shown.activations = std::max(passing, out.drawing - out.shown.kv_cache);
  const int64_t share = trained(role) / (layout.tp * layout.pp * shards);
  const bool sharded = layout.dp_replicate * shards > 1;
  const int64_t window = kFloat * (m.outside_parameters() + 2 * m.block_parameters()) / layout.tp;
  out.shown.masters_and_moments = 2 * kFloat * share;
  out.shown.gradients = sharded ? kFloat * share + window : kFloat * share;
  const int64_t parts = sharded ? 2 * kFloat * share : 0;  // of weights and gradients, in every phase
  const int64_t computing = sharded ? window : layout.pp > 1 ? kFloat * share : whole;
  out.idle = whole + parts + out.shown.masters_and_moments;
  out.updating = computing - whole + (sharded ? window : kFloat * share) + passing;
  if (layout.world() > 1) out.saving = 3 * kFloat * m.parameters - (layout.tp > 1 ? 0 : whole);  // gathered whole
  return out;
}

MemoryEstimate cpu_estimate(const std::vector<RoleSizes>& roles, const WorkloadSizes& w, int processes) {
  MemoryEstimate out;
  out.libraries = kCpuLibraries;
  int64_t idle = out.libraries, drawing = 0, updating = 0, saving = 0, copies = 0;
  for (const RoleSizes& role : roles) {  // one works at a time
    CpuRole cpu = on_cpu(role, w);
    if (role.trains && w.copies_state) copies += cpu.shown.state_copy = 3 * kFloat * trained(role);
    idle += cpu.idle;
    drawing = std::max(drawing, cpu.drawing), updating = std::max(updating, cpu.updating);
    saving = std::max(saving, cpu.saving);
    out.roles.push_back(cpu.shown);
  }
  const int64_t kept = w.copies_before_end ? copies : 0;
  out.phases = {
      {"rollout", idle + drawing + kept}, {"update", idle + updating + kept}, {"save", idle + saving + copies}};
  for (const PhasePeak& phase : out.phases) out.peak = std::max(out.peak, phase.bytes);
  const int64_t follower = idle + std::max({drawing, updating, saving});  // ranks that do not lead keep no copy
  out.processes_on_host = processes;
  out.host_peak = out.peak + (processes - 1) * follower;
  return out;
}

// As engine/memory_plan.h shares a GPU out. With data-parallel ranks parts of weights and gradients, two blocks of both
// and the gradients outside the blocks stay throughout; whole weights are there in rollout only.
struct GpuRole {
  RoleMemory shown;
  int64_t in_rollout = 0, in_update = 0;
};

GpuRole on_gpu(const RoleSizes& role) {
  const ModelShape& m = role.model;
  const Layout& layout = role.layout;
  const int64_t compute = m.parameters / layout.tp, block = m.block_parameters(), outside = m.outside_parameters();
  GpuRole out;
  RoleMemory& shown = out.shown;
  shown.role = role.role, shown.weights = kHalf * compute;
  out.in_rollout = out.in_update = shown.weights;
  if (!role.trains) return out;
  const bool spread = layout.dp_replicate * layout.dp_shard > 1;
  const int64_t part = ceil_div(trained(role), static_cast<int64_t>(layout.tp) * layout.pp * layout.dp_shard);
  shown.masters_and_moments = (spread ? kHalf + 3 * kFloat : 3 * kFloat) * part;
  shown.gradients = kFloat * (spread ? part + outside + 2 * block + std::max(outside, block) : part);
  if (spread) shown.weights += 2 * kHalf * block;
  out.in_update = shown.weights + shown.masters_and_moments + shown.gradients;
  out.in_rollout = spread ? out.in_update : out.in_update - shown.gradients;
  if (spread) out.in_update -= kHalf * (compute - outside);
  return out;
}

MemoryEstimate gpu_estimate(const std::vector<RoleSizes>& roles, const WorkloadSizes& w, const DeviceKind& device,
                            int processes) {
  MemoryEstimate out;
  out.libraries = kGpuWorkspace;
  int64_t rollout = out.libraries, update = out.libraries, host_copies = 0;
  for (const RoleSizes& role : roles) {
    GpuRole gpu = on_gpu(role);
    if (role.trains && w.copies_state) host_copies += gpu.shown.state_copy = 3 * kFloat * trained(role);
    rollout += gpu.in_rollout, update += gpu.in_update;
    out.roles.push_back(gpu.shown);
  }
  const auto budget = static_cast<int64_t>(static_cast<double>(device.bytes) * device.utilization);
  RoleMemory& actor = out.roles.front();
  actor.kv_cache = std::max(kGpuLeast, budget - rollout);
  actor.activations = std::max(kGpuLeast, budget - update);
  out.phases = {{"rollout", rollout + actor.kv_cache}, {"update", update + actor.activations}};
  out.peak = std::max(rollout, update) + kGpuLeast;
  out.processes_on_host = processes;
  out.host_peak = host_copies + processes * 4 * (int64_t{1} << 30);  // CUDA's context, pinned memory, libraries
  return out;
}

}  // namespace

MemoryEstimate estimate_memory(const std::vector<RoleSizes>& roles, const WorkloadSizes& work, const DeviceKind& device,
                               int processes_on_host) {
  return device.gpu ? gpu_estimate(roles, work, device, processes_on_host)
                    : cpu_estimate(roles, work, processes_on_host);
}

}  // namespace tandem
