#include "train/rollout_correction.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace tandem {
namespace {

constexpr double kLogLimit = 20;  // of a logarithm before exp, as in verl
constexpr std::string_view kAt = "algorithm.rollout_correction.";

double limited_exp(double x) { return std::exp(std::clamp(x, -kLogLimit, kLogLimit)); }

double log_ratio(const CorrectionRow& row, size_t t) {
  return double{row.old_logprobs[t]} - double{row.rollout_logprobs[t]};
}

template <class Fn>
void counted(const CorrectionRow& row, Fn fn) {
  for (size_t t = 0; t < row.mask.size(); ++t)
    if (row.mask[t] != 0) fn(t);
}

double statistic(RejectionStatistic kind, double log_rho) {
  log_rho = std::clamp(log_rho, -kLogLimit, kLogLimit);
  switch (kind) {
    case RejectionStatistic::kK1:
      return -log_rho;  // compared as a logarithm
    case RejectionStatistic::kK2:
      return 0.5 * log_rho * log_rho;
    case RejectionStatistic::kK3:
      break;
  }
  return std::exp(log_rho) - 1 - log_rho;
}

struct Total {
  double sum = 0, count = 0, least = INFINITY, most = -INFINITY;
  void add(double x) { sum += x, count += 1, least = std::min(least, x), most = std::max(most, x); }
  double mean() const { return count == 0 ? 0 : sum / count; }
};

bool keeps(const RejectionRule& rule, double value) {
  const bool as_log = rule.statistic == RejectionStatistic::kK1;
  return value >= (as_log ? std::log(rule.low) : rule.low) && value <= (as_log ? std::log(rule.high) : rule.high);
}

void reject(CorrectionRow& row, const RejectionRule& rule) {
  Total total;
  std::vector<uint8_t> kept = row.mask;
  counted(row, [&](size_t t) {
    const double value = statistic(rule.statistic, log_ratio(row, t));
    total.add(value);
    if (rule.scope == RejectionScope::kToken && !keeps(rule, value)) kept[t] = 0;
  });
  const double whole = rule.scope == RejectionScope::kSequenceSum    ? total.sum
                       : rule.scope == RejectionScope::kSequenceMean ? total.mean()
                                                                     : total.most;
  if (rule.scope != RejectionScope::kToken && total.count > 0 && !keeps(rule, whole)) std::ranges::fill(kept, 0);
  row.mask = std::move(kept);
}

void weigh(std::span<CorrectionRow> rows, const RolloutCorrectionOptions& options) {
  Total mean;
  for (CorrectionRow& row : rows) {
    row.weights.assign(row.mask.size(), 0);
    double whole = 0;
    counted(row, [&](size_t t) { whole += log_ratio(row, t); });
    const auto bounded = [&](double weight) {
      if (options.drop_outside) return weight < options.low || weight > options.high ? 0 : weight;
      return std::min(weight, options.high);
    };
    const bool by_token = options.level == ImportanceLevel::kToken;
    Total own;
    counted(row, [&](size_t t) {
      const double weight = bounded(limited_exp(by_token ? log_ratio(row, t) : whole));
      row.weights[t] = static_cast<float>(weight);
      own.add(weight);
      if (by_token) mean.add(weight);
    });
    if (!by_token && own.count > 0) mean.add(own.mean());
  }
  if (!options.batch_normalize || mean.mean() <= 0) return;
  for (CorrectionRow& row : rows)
    for (float& weight : row.weights) weight = static_cast<float>(weight / mean.mean());
}

// How far the two are apart: rollout_corr/{kl,k3_kl,*ppl*,chi2_*}.
void describe_distance(std::span<const CorrectionRow> rows, Metrics& metrics) {
  Total kl, k3, squares, sequence_squares, old_ppl, rollout_ppl, ppl_difference, ppl_ratio;
  for (const CorrectionRow& row : rows) {
    Total of_old, of_rollout;
    counted(row, [&](size_t t) {
      const double x = log_ratio(row, t);
      kl.add(-x), k3.add(limited_exp(x) - 1 - x), squares.add(limited_exp(2 * x));
      of_old.add(row.old_logprobs[t]), of_rollout.add(row.rollout_logprobs[t]);
    });
    if (of_old.count == 0) continue;
    const double difference = of_rollout.mean() - of_old.mean();
    sequence_squares.add(limited_exp(2 * (of_old.sum - of_rollout.sum)));
    old_ppl.add(std::exp(-of_old.mean())), rollout_ppl.add(std::exp(-of_rollout.mean()));
    ppl_difference.add(difference), ppl_ratio.add(std::exp(difference));
  }
  metrics.set("rollout_corr/kl", kl.mean());
  metrics.set("rollout_corr/k3_kl", k3.mean());
  metrics.set("rollout_corr/training_ppl", old_ppl.mean());
  metrics.set("rollout_corr/rollout_ppl", rollout_ppl.mean());
  metrics.set("rollout_corr/log_ppl_diff", ppl_difference.mean());
  metrics.set("rollout_corr/ppl_ratio", ppl_ratio.mean());
  metrics.set("rollout_corr/chi2_token", squares.count == 0 ? 0 : squares.mean() - 1);
  metrics.set("rollout_corr/chi2_seq", sequence_squares.count == 0 ? 0 : sequence_squares.mean() - 1);
}

void describe_weights(std::span<const CorrectionRow> rows, Metrics& metrics) {
  Total all, squares;
  for (const CorrectionRow& row : rows)
    counted(row, [&](size_t t) { all.add(row.weights[t]), squares.add(double{row.weights[t]} * row.weights[t]); });
  if (all.count == 0) return;
  metrics.set("rollout_corr/rollout_is_mean", all.mean());
  metrics.set("rollout_corr/rollout_is_max", all.most);
  metrics.set("rollout_corr/rollout_is_min", all.least);
  metrics.set("rollout_corr/rollout_is_std", std::sqrt(std::max(0.0, squares.mean() - all.mean() * all.mean())));
  metrics.set("rollout_corr/rollout_is_eff_sample_size",
              squares.mean() > 0 ? all.mean() * all.mean() / squares.mean() : 0);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    std::string_view part = text.substr(0, at);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

double number(std::string_view text, std::string_view key, std::string_view whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    throw ConfigError(fmt::format("{}{}={}: expected a number of 0 or more, or two as in 0.5_2.0", kAt, key, whole));
  return value;
}

// "u" gives no lower bound.
std::pair<std::optional<double>, double> bounds(std::string_view text, std::string_view key) {
  const auto parts = split(text, '_');
  if (parts.size() == 1) return {std::nullopt, number(text, key, text)};
  const double low = number(parts[0], key, text), high = number(parts[1], key, text);
  if (parts.size() > 2 || low > high)
    throw ConfigError(fmt::format("{}{}={}: expected the lower and the upper bound, as in 0.5_2.0", kAt, key, text));
  return {low, high};
}

struct NamedScope {
  std::string_view prefix;
  RejectionScope scope;
};
constexpr NamedScope kScopes[] = {{"token_", RejectionScope::kToken},
                                  {"seq_sum_", RejectionScope::kSequenceSum},
                                  {"seq_mean_", RejectionScope::kSequenceMean},
                                  {"seq_max_", RejectionScope::kSequenceMax}};

RejectionRule parse_rule(std::string_view mode, std::string_view threshold) {
  const auto scope = std::ranges::find_if(kScopes, [&](const NamedScope& s) { return mode.starts_with(s.prefix); });
  const std::string_view k = mode.substr(std::min(mode.size(), mode.size() < 2 ? 0 : mode.size() - 2));
  const bool known = scope != std::end(kScopes) && mode.size() == scope->prefix.size() + 2 &&
                     (k == "k1" || k == "k2" || k == "k3") &&
                     !(k == "k1" && scope->scope == RejectionScope::kSequenceMax);
  if (!known)
    throw ConfigError(
        fmt::format("{}rollout_rs={}: known modes are token_k1, token_k2, token_k3, seq_sum_k1, seq_sum_k2, "
                    "seq_sum_k3, seq_mean_k1, seq_mean_k2, seq_mean_k3, seq_max_k2, seq_max_k3",
                    kAt, mode));
  if (threshold.empty())
    throw ConfigError(fmt::format("{}rollout_rs_threshold is not set, but rollout_rs={} needs it", kAt, mode));
  RejectionRule rule;
  rule.scope = scope->scope;
  rule.statistic = k == "k1" ? RejectionStatistic::kK1 : k == "k2" ? RejectionStatistic::kK2 : RejectionStatistic::kK3;
  const auto [low, high] = bounds(threshold, "rollout_rs_threshold");
  const bool ratio = rule.statistic == RejectionStatistic::kK1;
  if (ratio && (high <= 0 || low == 0.0))
    throw ConfigError(fmt::format("{}rollout_rs_threshold={}: bounds of a ratio are above 0", kAt, threshold));
  rule.low = low.value_or(ratio ? std::min(1 / high, high) : 0);
  rule.high = ratio && !low ? std::max(1 / high, high) : high;
  return rule;
}

}  // namespace

RolloutCorrectionOptions parse_rollout_correction(std::string_view level, std::string_view threshold,
                                                  bool batch_normalize, std::string_view rejection,
                                                  std::string_view rejection_threshold) {
  RolloutCorrectionOptions options;
  options.enable = !level.empty() || !rejection.empty();
  options.level = level == "token"      ? ImportanceLevel::kToken
                  : level == "sequence" ? ImportanceLevel::kSequence
                                        : ImportanceLevel::kNone;
  if (!level.empty() && options.level == ImportanceLevel::kNone)
    throw ConfigError(fmt::format("{}rollout_is={}: expected token, sequence or null", kAt, level));
  const auto [low, high] = bounds(threshold, "rollout_is_threshold");
  options.low = low.value_or(0), options.high = high, options.drop_outside = low.has_value();
  options.batch_normalize = batch_normalize;
  if (rejection.empty()) return options;
  const auto modes = split(rejection, ','), thresholds = split(rejection_threshold, ',');
  if (thresholds.size() != 1 && thresholds.size() != modes.size())
    throw ConfigError(
        fmt::format("{}rollout_rs_threshold={}: give one bound for all {} modes of rollout_rs, or one each", kAt,
                    rejection_threshold, modes.size()));
  for (size_t i = 0; i < modes.size(); ++i)
    options.rejections.push_back(parse_rule(modes[i], thresholds[thresholds.size() == 1 ? 0 : i]));
  return options;
}

Metrics correct_rollout(std::span<CorrectionRow> rows, const RolloutCorrectionOptions& options) {
  Metrics metrics;
  describe_distance(rows, metrics);
  if (options.level != ImportanceLevel::kNone) {
    weigh(rows, options);
    describe_weights(rows, metrics);
  }
  if (options.rejections.empty()) return metrics;
  Total tokens, sequences;
  for (CorrectionRow& row : rows) {
    const std::vector<uint8_t> before = row.mask;
    for (const RejectionRule& rule : options.rejections) {
      CorrectionRow whole = row;  // every rule sees what came in, so that their order does not matter
      whole.mask = before;
      reject(whole, rule);
      for (size_t t = 0; t < before.size(); ++t) row.mask[t] = row.mask[t] != 0 && whole.mask[t] != 0 ? 1 : 0;
    }
    bool touched = false;
    for (size_t t = 0; t < before.size(); ++t)
      if (before[t] != 0) tokens.add(row.mask[t] == 0 ? 1 : 0), touched = touched || row.mask[t] == 0;
    sequences.add(touched ? 1 : 0);
  }
  metrics.set("rollout_corr/rollout_rs_masked_fraction", tokens.mean());
  metrics.set("rollout_corr/rollout_rs_seq_masked_fraction", sequences.mean());
  return metrics;
}

}  // namespace tandem
