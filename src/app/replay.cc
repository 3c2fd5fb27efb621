// tandem replay: makes the update of a dumped mini-batch again and says which samples break it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/command.h"
#include "app/options.h"
#include "base/log.h"
#include "config/load.h"
#include "engine/update_dump.h"
#include "engine/value_model.h"
#include "kernels/kernels.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  double loss = 0, grad_norm = 0;
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

double norm_of(const DecoderWeights& gradients) {
  std::vector<at::Tensor> all;
  for (const NamedTensor& gradient : parameters(gradients)) all.push_back(gradient.tensor);
  return std::sqrt(kernels::sum_of_squares(all));
}

// The role's model as it was, and its loss over samples.
class Replayed {
 public:
  Replayed(const UpdateDump& dump, const Config& config, const fs::path& folder)
      : is_critic_(dump.role == "critic"), unchanged_(dump.unchanged) {
    const fs::path model = folder / "huggingface";
    const int64_t length = derived_sizes(config).model_length;
    if (is_critic_) {
      values_ = critic_options(config, 1).trainer;
      decoder_ = load_value_decoder(model, length, 0);
    } else {
      trainer_ = engine_options(config, {}, 1).trainer;
      decoder_ = load_decoder(model, length);
    }
    if (unchanged_ && !dump.samples.empty()) trainer_.weights_version = dump.samples[0].trajectory->policy_version;
    optimizer_ = std::make_unique<Optimizer>(decoder_->weights(), OptimizerOptions{});
    optimizer_->set_num_steps(dump.optimizer_steps);
  }

  Outcome run(std::span<const TrainingSample> samples) {
    DecoderWeights gradients = zero_weights(decoder_->config());
    const double loss =
        is_critic_ ? ValueTrainer(*decoder_, *optimizer_, values_).accumulate(samples, gradients).vf_loss
                   : Trainer(*decoder_, *optimizer_, trainer_).accumulate(samples, gradients, {}, unchanged_).loss;
    return {loss, norm_of(gradients)};
  }

 private:
  bool is_critic_, unchanged_;
  TrainerOptions trainer_;
  ValueTrainerOptions values_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;
};

template <class T>
std::string range_of(const char* name, const std::vector<T>& values) {
  if (values.empty()) return "";
  const auto bad = std::ranges::count_if(values, [](T value) { return !std::isfinite(value); });
  const auto [low, high] = std::ranges::minmax(values);
  return fmt::format("  {} {:.4g} .. {:.4g}{}", name, low, high, bad > 0 ? fmt::format(" ({} not finite)", bad) : "");
}

std::string line_of(const TrainingSample& sample, const Outcome& outcome) {
  const Trajectory& t = *sample.trajectory;
  return fmt::format("prompt {} sample {}: {} tokens, advantage {:.6g}, loss {:.6g}, gradient norm {:.6g}{}{}{}{}{}{}",
                     t.prompt->id, t.sample_index, t.response_ids.size(), sample.advantage, outcome.loss,
                     outcome.grad_norm, range_of("log-probs", t.rollout_logprobs), range_of("ref", sample.ref_logprobs),
                     range_of("old", sample.old_logprobs), range_of("advantages", sample.advantages),
                     range_of("returns", sample.returns), outcome.finite() ? "" : "  <- not finite");
}

int replay(const fs::path& folder) {
  const UpdateDump dump = read_dump(folder);
  // A dump stands for itself: the model is the one beside it.
  const std::string model = (folder / "huggingface").string();
  const std::vector<std::string> own = {"actor_rollout_ref.model.path=" + model, "critic.model.path=" + model,
                                        "actor_rollout_ref.model.lora_rank=0",
                                        "actor_rollout_ref.model.lora_adapter_path=null", "trainer.device=cpu"};
  const Config config = load_config({folder / "config.yaml"}, own);
  Replayed replayed(dump, config, folder);
  const Outcome whole = replayed.run(dump.samples);
  print_line(fmt::format("step {} of the run, {}, {} samples: loss {} and gradient norm {} then, {} and {} now",
                         dump.step, dump.role, dump.samples.size(), dump.loss, dump.grad_norm, whole.loss,
                         whole.grad_norm));
  size_t bad = 0;
  for (const TrainingSample& sample : dump.samples) {
    const Outcome alone = replayed.run({&sample, 1});
    bad += alone.finite() ? 0 : 1;
    print_line(line_of(sample, alone));
  }
  print_line(fmt::format("{} of {} samples are not finite by themselves{}", bad, dump.samples.size(),
                         bad == 0 && !whole.finite() ? "; together they are not: sums or gradients overflow" : ""));
  return 0;
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "replay", "make a dumped update again (<run folder>/dumps/...) and say which samples are not finite");
  auto folder = std::make_shared<std::string>();
  command->add_option("dump", *folder, "folder of the dump")->required();
  command->callback([&action, folder] { action = [folder] { return replay(*folder); }; });
}

}  // namespace tandem
