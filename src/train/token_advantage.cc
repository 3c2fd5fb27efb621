#include "train/token_advantage.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tandem {
namespace {

// Calls fn(t) for the trained tokens of a row, the last one first.
template <class Fn>
void backwards(const TokenRow& row, Fn fn) {
  for (size_t t = row.mask.size(); t-- > 0;)
    if (row.mask[t] != 0) fn(t);
}

template <class Fn>
void trained(std::span<TokenRow> rows, Fn fn) {
  for (TokenRow& row : rows)
    for (size_t t = 0; t < row.mask.size(); ++t)
      if (row.mask[t] != 0) fn(row, t);
}

// Sample variance, eps 1e-8, as verl's; equal values give exactly 0.
void whiten(std::span<TokenRow> rows) {
  double count = 0, sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
  trained(rows, [&](TokenRow& row, size_t t) {
    count += 1, sum += row.advantages[t];
    least = std::min(least, row.advantages[t]), most = std::max(most, row.advantages[t]);
  });
  if (count == 0) return;
  if (count == 1) throw DataError("whitening needs at least two response tokens in a step");
  const double mean = sum / count;
  trained(rows, [&](TokenRow& row, size_t t) { squares += std::pow(row.advantages[t] - mean, 2); });
  const double scale = least == most ? 0 : 1 / std::sqrt(squares / (count - 1) + 1e-8);
  trained(rows, [&](TokenRow& row, size_t t) { row.advantages[t] = (row.advantages[t] - mean) * scale; });
}

void discounted_returns(TokenRow& row, double gamma) {
  double running = 0;
  backwards(row, [&](size_t t) { row.returns[t] = running = row.rewards[t] + gamma * running; });
}

void gae(TokenRow& row, double gamma, double lam) {
  double next_value = 0, advantage = 0;
  backwards(row, [&](size_t t) {
    const double value = row.values[t];
    advantage = row.rewards[t] + gamma * next_value - value + gamma * lam * advantage;
    next_value = value;
    row.advantages[t] = advantage;
    row.returns[t] = advantage + value;
  });
}

// W_t of a row at every token.
std::vector<double> score_sizes(const TokenRow& row) {
  std::vector<double> sizes(row.mask.size());
  double running = 0;
  for (size_t t = 0; t < sizes.size(); ++t) {
    if (row.mask[t] != 0) {
      const double weight = row.importance_weights.empty() ? 1 : row.importance_weights[t];
      running += (1 - 2 * std::exp(double{row.logprobs[t]}) + row.sum_squared_probs[t]) * weight * weight;
    }
    sizes[t] = running;
  }
  return sizes;
}

bool is_trained(const TokenRow& row, size_t t) { return t < row.mask.size() && row.mask[t] != 0; }

size_t trained_end(const TokenRow& row) {  // behind the last trained token
  size_t end = row.mask.size();
  while (end > 0 && row.mask[end - 1] == 0) --end;
  return end;
}

// Over the responses that have a trained token there.
double group_baseline(size_t t, std::span<const TokenRow> group, std::span<const std::vector<double>> sizes) {
  double weighted = 0, total = 0, least = INFINITY, most = -INFINITY;
  for (size_t i = 0; i < group.size(); ++i) {
    if (!is_trained(group[i], t)) continue;
    weighted += group[i].returns[t] * sizes[i][t], total += sizes[i][t];
    least = std::min(least, group[i].returns[t]), most = std::max(most, group[i].returns[t]);
  }
  if (least == most) return least;
  return total > 0 ? weighted / total : 0;
}

void optimal_token_baseline(std::span<TokenRow> group) {
  std::vector<std::vector<double>> sizes;
  std::vector<size_t> ends;
  for (TokenRow& row : group) {
    discounted_returns(row, 1);
    sizes.push_back(score_sizes(row));
    ends.push_back(trained_end(row));
  }
  std::ranges::sort(ends, std::greater{});
  const size_t shared = ends.size() > 1 ? ends[1] : 0;
  for (size_t t = 0; t < ends[0]; ++t) {
    const double baseline = t < shared ? group_baseline(t, group, sizes) : 0;
    for (TokenRow& row : group)
      if (is_trained(row, t)) row.advantages[t] = row.returns[t] - baseline;
  }
}

}  // namespace

std::optional<TokenEstimator> find_token_estimator(std::string_view name) {
  if (name == "gae") return TokenEstimator::kGae;
  if (name == "reinforce_plus_plus") return TokenEstimator::kReinforcePlusPlus;
  if (name == "remax") return TokenEstimator::kRemax;
  if (name == "optimal_token_baseline") return TokenEstimator::kOptimalTokenBaseline;
  return std::nullopt;
}

void estimate_token_advantages(std::span<TokenRow> rows, const TokenAdvantageOptions& options) {
  for (TokenRow& row : rows) {
    row.advantages.assign(row.mask.size(), 0);
    row.returns.assign(row.mask.size(), 0);
  }
  switch (options.estimator) {
    case TokenEstimator::kGae:
      for (TokenRow& row : rows) gae(row, options.gamma, options.lam);
      return whiten(rows);
    case TokenEstimator::kReinforcePlusPlus:
      for (TokenRow& row : rows) discounted_returns(row, options.gamma);
      trained(rows, [](TokenRow& row, size_t t) { row.advantages[t] = row.returns[t]; });
      return whiten(rows);
    case TokenEstimator::kRemax:
      for (TokenRow& row : rows) discounted_returns(row, 1);
      trained(rows, [](TokenRow& row, size_t t) { row.advantages[t] = row.returns[t] - row.baseline; });
      return;
    case TokenEstimator::kOptimalTokenBaseline:
      for (size_t begin = 0, end; begin < rows.size(); begin = end) {
        end = begin + 1;
        while (end < rows.size() && rows[end].group == rows[begin].group) ++end;
        optimal_token_baseline(rows.subspan(begin, end - begin));
      }
  }
}

}  // namespace tandem
