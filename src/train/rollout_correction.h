// What to do about samples that other weights, or other kernels, drew than those that train on them: importance
// weights, their truncation, and rejection (verl's algorithm.rollout_correction). With ρ = π_old / π_rollout of a
// token, where π_old are the weights before the update. Where the two are the same every weight is exactly 1. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "observe/metrics.h"

namespace tandem {

enum class ImportanceLevel : uint8_t { kNone, kToken, kSequence };  // ρ, or Π ρ over the response for all its tokens

// k1 = −log ρ, with bounds on its exponential 1/ρ; k2 = (log ρ)² / 2; k3 = ρ − 1 − log ρ. log ρ is limited to ±20.
enum class RejectionStatistic : uint8_t { kK1, kK2, kK3 };
enum class RejectionScope : uint8_t { kToken, kSequenceSum, kSequenceMean, kSequenceMax };

// Keeps a token (or, by sequence, a whole response) whose statistic lies in [low, high].
struct RejectionRule {
  RejectionScope scope = RejectionScope::kToken;
  RejectionStatistic statistic = RejectionStatistic::kK1;
  double low = 0, high = 2;
};

struct RolloutCorrectionOptions {
  bool enable = false;
  ImportanceLevel level = ImportanceLevel::kNone;
  double low = 0, high = 2;               // of the weights
  bool drop_outside = false;              // weights outside become 0; false: those above `high` become `high`
  bool batch_normalize = false;           // divide by their mean
  std::vector<RejectionRule> rejections;  // all must keep a token
};

// verl's spellings: level "token", "sequence" or ""; threshold "2.0" or "0.5_2.0"; rejection modes
// "token_k1,seq_mean_k3", with one threshold each or one for all ("u" of k1 means "1/u_u"). ConfigError otherwise.
RolloutCorrectionOptions parse_rollout_correction(std::string_view level, std::string_view threshold,
                                                  bool batch_normalize, std::string_view rejection,
                                                  std::string_view rejection_threshold);

// One response; vectors hold one value a token.
struct CorrectionRow {
  std::vector<float> old_logprobs, rollout_logprobs;
  std::vector<uint8_t> mask;   // rejected tokens are cleared
  std::vector<float> weights;  // result; empty without a level
};

// Returns verl's rollout_corr/* metrics.
Metrics correct_rollout(std::span<CorrectionRow> rows, const RolloutCorrectionOptions& options);

}  // namespace tandem
