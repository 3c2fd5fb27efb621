#include "app/nonfinite.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "engine/update_dump.h"

namespace tandem {

void NonFiniteGuard::begin_step(int64_t step) {
  step_ = step;
  if (last_bad_step_ < step - 1) bad_steps_in_a_row_ = 0;
}

bool NonFiniteGuard::operator()(const std::string& role, const NonFiniteUpdate& update, const Decoder& decoder) {
  if (last_bad_step_ != step_) ++bad_steps_in_a_row_;
  last_bad_step_ = step_;
  const bool skip = policy_.skip && bad_steps_in_a_row_ <= policy_.most_in_a_row;
  std::string where = "it is not written down: there are enough dumps";
  if (num_dumps_ < policy_.most_dumps) {
    const auto folder =
        policy_.run_folder / "dumps" / fmt::format("step_{}_{}_{}", step_, role, update.optimizer_steps);
    try {
      write_dump(folder, role, step_, update, decoder, policy_.source_model);
      write_file_atomic(folder / "config.yaml", policy_.config_yaml);
      ++num_dumps_;
      where = "look at it with: tandem replay " + folder.string();
    } catch (const std::exception& error) {
      where = std::string("it cannot be written down: ") + error.what();
    }
  }
  log_warn(fmt::format("step {}: a mini-batch of the {} has loss {} and gradient norm {}; {}; {}", step_, role,
                       update.loss, update.grad_norm, skip ? "it is left out" : "the run ends", where));
  return skip;
}

}  // namespace tandem
