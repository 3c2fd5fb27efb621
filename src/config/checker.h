// What the checks of every command's configuration have in common.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "config/fields.h"
#include "config/validate.h"

namespace tandem {

// Bounds that no sensible run meets; they keep every product of sizes within 64 bits.
constexpr int64_t kMaxBatch = 1'000'000;
constexpr int64_t kMaxSamples = 100'000;
constexpr int64_t kMaxLength = 10'000'000;
constexpr int64_t kMaxCount = 1'000'000'000;

// Keeps the first problem only: one clear error at a time.
template <class AnyConfig>
class ConfigChecker {
 public:
  explicit ConfigChecker(const AnyConfig& config) : config_(config) {}

  void require(bool ok, const std::string& key, const std::string& what) {
    if (ok || problem_) return;
    const Field* field = fields_.find(key);
    problem_ = Problem{key, fmt::format("{}={}: {}", key, field ? field_text(*field) : "", what)};
  }

  void between(int64_t value, int64_t least, int64_t most, const std::string& key) {
    require(least <= value && value <= most, key, fmt::format("must be between {} and {}", least, most));
  }
  void between(std::optional<int64_t> value, int64_t least, int64_t most, const std::string& key) {
    if (value) between(*value, least, most, key);
  }
  void at_least(double value, double least, const std::string& key) {
    require(std::isfinite(value) && value >= least, key, fmt::format("must be a finite number, {} or more", least));
  }
  void share(double value, const std::string& key) {  // in [0, 1]
    require(value >= 0 && value <= 1, key, "must be between 0 and 1");
  }
  void limit_or_none(int64_t value, const std::string& key) {
    require(value == -1 || (value >= 1 && value <= kMaxCount), key, "must be 1 or more, or -1 for none");
  }
  void named(const std::string& value, const std::string& key) { require(!value.empty(), key, "must not be empty"); }
  void path_if_set(const std::optional<std::string>& value, const std::string& key) {
    require(!value || !value->empty(), key, "is an empty path: name one, or leave it out");
  }

  // Config structs are filled by hand too: words are checked once more.
  void choices() {
    for (const Field& field : fields_.fields) {
      if (field.choices.empty()) continue;
      const auto known = [&](const std::string& word) {
        require(std::ranges::find(field.choices, word) != field.choices.end(), field.key,
                "expected " + expected_text(field));
      };
      if (const auto* one = std::get_if<std::string*>(&field.member)) known(**one);
      if (const auto* many = std::get_if<std::vector<std::string>*>(&field.member))
        std::ranges::for_each(**many, known);
    }
  }

  const std::optional<Problem>& problem() const { return problem_; }

 private:
  AnyConfig config_;
  const FieldList fields_ = list_fields(config_);
  std::optional<Problem> problem_;
};

template <class AnyConfig>
void check_lora(ConfigChecker<AnyConfig>& check, const PolicyModelConfig& model, const std::string& at) {
  check.between(model.lora_rank, 0, 65536, at + "lora_rank");
  check.between(model.lora_alpha, 1, kMaxCount, at + "lora_alpha");
  check.path_if_set(model.lora_adapter_path, at + "lora_adapter_path");
}

template <class AnyConfig>
void check_optim(ConfigChecker<AnyConfig>& check, const OptimConfig& optim, const std::string& at) {
  check.at_least(optim.lr, 0, at + "lr");
  check.require(optim.betas.size() == 2 && std::ranges::all_of(optim.betas, [](double b) { return b >= 0 && b < 1; }),
                at + "betas", "must be two numbers, each 0 or more and below 1");
  check.at_least(optim.weight_decay, 0, at + "weight_decay");
  check.require(std::isfinite(optim.clip_grad) && optim.clip_grad > 0, at + "clip_grad",
                "must be above 0; a large number clips nothing");
  check.between(optim.lr_warmup_steps, -1, kMaxCount, at + "lr_warmup_steps");
  check.share(optim.lr_warmup_steps_ratio, at + "lr_warmup_steps_ratio");
  check.share(optim.min_lr_ratio, at + "min_lr_ratio");
  check.at_least(optim.num_cycles, 0, at + "num_cycles");
}

template <class AnyConfig>
void check_outlooks(ConfigChecker<AnyConfig>& check, const RunConfig& trainer) {
  check.between(trainer.dashboard.port, 0, 65535, "trainer.dashboard.port");
  check.named(trainer.dashboard.host, "trainer.dashboard.host");
  check.require(trainer.peak_tflops.value_or(0) >= 0, "trainer.peak_tflops", "must not be negative");
  check.require(std::ranges::all_of(trainer.profile.steps, [](int64_t step) { return step >= 1; }),
                "trainer.profile.steps", "counts steps from 1");
}

}  // namespace tandem
