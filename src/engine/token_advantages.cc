#include "engine/token_advantages.h"

#include <numeric>

namespace tandem {
namespace {

double variance(const std::vector<double>& x) {
  if (x.size() < 2) return 0;
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double squares = 0;
  for (const double v : x) squares += (v - mean) * (v - mean);
  return squares / static_cast<double>(x.size() - 1);
}

// As verl: 1 − Var(R − V) / (Var(R) + 1e-5).
Metrics metrics_of(std::span<const TokenRow> rows) {
  std::vector<double> advantages, returns, values, errors;
  for (const TokenRow& row : rows)
    for (size_t t = 0; t < row.mask.size(); ++t) {
      if (row.mask[t] == 0) continue;
      advantages.push_back(row.advantages[t]), returns.push_back(row.returns[t]);
      if (row.values.empty()) continue;
      values.push_back(row.values[t]), errors.push_back(row.returns[t] - row.values[t]);
    }
  Metrics metrics;
  add_summary(metrics, "critic/advantages", advantages);
  add_summary(metrics, "critic/returns", returns);
  if (values.empty()) return metrics;
  add_summary(metrics, "critic/values", values);
  metrics.set("critic/vf_explained_var", 1 - variance(errors) / (variance(returns) + 1e-5));
  return metrics;
}

}  // namespace

TokenRow TokenAdvantages::row_of(const Sample& sample, double kl_coef) const {
  const TrajectoryPtr trajectory = store_->get(sample.handle);
  TokenRecord record = store_->record(sample.handle);
  const std::vector<float>& logprobs = old_logprobs(*trajectory, record.old_logprobs);
  TokenRow row;
  row.mask = token_mask(*trajectory, record.mask);
  row.group = sample.group, row.baseline = sample.baseline;
  row.rewards.assign(row.mask.size(), 0);
  for (size_t t = 0; kl_coef != 0 && t < row.mask.size(); ++t)
    if (row.mask[t] != 0) row.rewards[t] = -kl_coef * token_kl(kl_type_, logprobs[t], record.ref_logprobs[t]).value;
  for (size_t t = row.mask.size(); t-- > 0;) {
    if (row.mask[t] == 0) continue;
    row.rewards[t] += sample.reward;
    break;
  }
  row.values = std::move(record.values);
  row.logprobs = logprobs;
  row.sum_squared_probs = std::move(record.sum_squared_probs);
  row.importance_weights = std::move(record.importance_weights);
  return row;
}

TokenAdvantageResult TokenAdvantages::estimate(const TokenAdvantageRequest& request) {
  std::vector<TokenRow> rows;
  for (const Sample& sample : request.samples) rows.push_back(row_of(sample, request.kl_coef));
  estimate_token_advantages(rows, options_);
  TokenAdvantageResult result{request.samples, metrics_of(rows)};
  for (size_t i = 0; i < rows.size(); ++i) {
    Sample& sample = result.samples[i];
    sample.reward -= request.kl_coef * sample.kl;
    const double sum = std::accumulate(rows[i].advantages.begin(), rows[i].advantages.end(), 0.0);
    sample.advantage = sample.trained_length == 0 ? 0 : sum / sample.trained_length;
    store_->set(sample.handle, &TokenRecord::advantages, std::move(rows[i].advantages));
    store_->set(sample.handle, &TokenRecord::returns, std::move(rows[i].returns));
  }
  return result;
}

}  // namespace tandem
