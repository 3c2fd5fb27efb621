// The checkpoint of a model in training, policy or critic: huggingface/ (fp32 weights and config; other programs load
// it), optim.safetensors, extra_state.json. Of several ranks each writes the moments of its part, as
// optim_world_size_W_rank_R.safetensors, and huggingface/ is of several files too; whoever reads needs not know. Of a
// model with adapters lora_adapter/ (fp32, in PEFT's layout) stands in the place of huggingface/.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/sharded_io.h"
#include "checkpoint/write_pace.h"
#include "model/decoder.h"
#include "train/optimizer.h"

namespace tandem {

class ModelParts;
class SharedMemory;

// checkpoint.save_contents and load_contents of verl; weights are saved in Hugging Face layout in any case.
struct CheckpointContents {
  bool weights = true, optimizer = true, extra = true;  // extra: version and optimizer steps
  bool merged = false;                                  // with adapters: also huggingface/, the model they make
};

// All that a checkpoint of a model holds, in host memory: it stays as it is while the model trains on.
struct ModelStateCopy {
  DecoderWeights weights;              // what is trained, in fp32
  DecoderWeights exp_avg, exp_avg_sq;  // the optimizer's moments; without tensors before the first update
  int64_t optimizer_steps = 0;
  uint64_t version = 0;                  // counts updates
  std::shared_ptr<SharedMemory> memory;  // of several ranks: where all of it lies
};
uint64_t state_copy_bytes(const Decoder& decoder);  // what one takes

// `into` is filled anew; its memory is used again.
void copy_model_state(const Decoder& decoder, Optimizer* optimizer, uint64_t version, ModelStateCopy& into);
// Bit for bit; makes the optimizer where the copy has one, and drops it where not.
void restore_model_state(const ModelStateCopy& copy, Decoder& decoder, const OptimizerOptions& options,
                         std::unique_ptr<Optimizer>& optimizer);
// The folder that save_model_state() would have written at the time of the copy. Any thread. `pace` may be null. With
// `parts` a file a rank, written side by side.
void save_model_copy(const std::filesystem::path& folder, const std::filesystem::path& source_model,
                     const ModelConfig& config, const ModelStateCopy& copy, const CheckpointContents& contents,
                     WritePace* pace, const ModelParts* parts = nullptr);

// `source_model`: the folder whose tokenizer files go along. `optimizer` may be null (nothing trained yet). `version`
// counts updates.
void save_model_state(const std::filesystem::path& folder, const std::filesystem::path& source_model,
                      const Decoder& decoder, Optimizer* optimizer, uint64_t version,
                      const CheckpointContents& contents);

// The decoder's weights become these, fp32 on the CPU, in place; and so do the masters of a GPU's.
void set_weights(Decoder& decoder, const DecoderWeights& exact);

// Restores what `contents` says, bit for bit; makes the optimizer where one was saved. Returns the saved version, or
// nothing without `extra`. IoError for files of another model.
std::optional<uint64_t> load_model_state(const std::filesystem::path& folder, Decoder& decoder,
                                         const OptimizerOptions& options, std::unique_ptr<Optimizer>& optimizer,
                                         const CheckpointContents& contents);

// The parts of it, for ranks that each read their own. IoError as above.
struct SavedProgress {
  int64_t optimizer_steps = 0;
  uint64_t version = 0;
};
SavedProgress read_progress(const std::filesystem::path& folder);
inline constexpr const char *kFirstMoment = "exp_avg.", *kSecondMoment = "exp_avg_sq.";  // before a tensor's name
ShardedFolder moment_files(const std::filesystem::path& folder);
void refuse_adapters(const std::filesystem::path& folder);  // where all weights are trained

}  // namespace tandem
