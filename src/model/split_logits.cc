#include "model/split_logits.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"
#include "kernels/vocabulary_piece.h"
#include "model/placements.h"

namespace tandem {
namespace {

constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

// Pieces [begin, end) of the vocabulary that a rank has, and where one ends.
Range pieces_of(const TensorSplit& split, int rank) {
  return {rank * kTpPieces / split.size(), (rank + 1) * kTpPieces / split.size()};
}

std::span<const float> piece(const TensorSplit& split, std::span<const float> own, int64_t index) {
  const int64_t vocab = split.whole_config().vocab_size, first = split.vocabulary(split.rank()).begin;
  const int64_t begin = index * vocab / kTpPieces - first, end = (index + 1) * vocab / kTpPieces - first;
  return own.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

std::span<float> row_of(const at::Tensor& matrix, int64_t row) {
  return {kernels::f32(matrix) + row * matrix.size(1), static_cast<size_t>(matrix.size(1))};
}

template <class Fn>
void for_rows(size_t rows, Fn fn) {
  kernels::parallel_for(static_cast<int64_t>(rows), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) fn(static_cast<size_t>(i));
  });
}

}  // namespace

SplitStats split_stats(TensorSplit& split, std::span<const SplitRow> rows, bool with_entropy) {
  const size_t count = rows.size();
  std::vector<float> maxima(count);
  for_rows(count, [&](size_t i) { maxima[i] = kernels::scaled_max(rows[i].own, rows[i].inverse_temperature); });
  for (const std::vector<float>& theirs : split.gather_values("maxima of logits", maxima, {}))
    for (size_t i = 0; i < count; ++i) maxima[i] = std::max(maxima[i], theirs[i]);

  const Range mine = pieces_of(split, split.rank());
  const auto width = static_cast<size_t>(mine.size());
  std::vector<kernels::ExpSums> own(count * width);
  for_rows(count, [&](size_t i) {
    for (size_t p = 0; p < width; ++p)
      own[i * width + p] = kernels::exp_sums(piece(split, rows[i].own, mine.begin + static_cast<int64_t>(p)),
                                             rows[i].inverse_temperature, maxima[i], with_entropy);
  });
  std::vector<size_t> lengths;
  for (int r = 0; r < split.size(); ++r) lengths.push_back(count * static_cast<size_t>(pieces_of(split, r).size()));
  const auto all = split.gather_values("sums over the vocabulary", own, lengths);

  SplitStats stats{std::vector<kernels::RowStats>(count), std::vector<std::vector<double>>(count)};
  for (size_t i = 0; i < count; ++i) {
    kernels::ExpSums sum;
    for (int r = 0; r < split.size(); ++r) {
      const auto theirs = static_cast<size_t>(pieces_of(split, r).size());
      for (size_t p = 0; p < theirs; ++p) {
        const kernels::ExpSums& part = all[static_cast<size_t>(r)][i * theirs + p];
        sum.total += part.total, sum.weighted += part.weighted;
        stats.pieces[i].push_back(part.total);
      }
    }
    stats.rows[i] = kernels::stats_of(maxima[i], sum, with_entropy);
  }
  return stats;
}

std::vector<Proposal> greatest(TensorSplit& split, const std::vector<Proposal>& own) {
  std::vector<Proposal> best(own.size(), {kNoLogit, -1});
  for (const std::vector<Proposal>& theirs : split.gather_values("proposals of ids", own, {}))
    for (size_t i = 0; i < best.size(); ++i)  // ranks ascend, and so do their ids
      if (theirs[i].id >= 0 && (best[i].id < 0 || theirs[i].logit > best[i].logit)) best[i] = theirs[i];
  return best;
}

Proposal propose_inverse(const TensorSplit& split, const SplitRow& row, const SplitStats& stats, size_t index,
                         double uniform) {
  const std::vector<double>& pieces = stats.pieces[index];
  double goal = 0;
  for (const double sum : pieces) goal += sum;
  goal *= uniform;
  size_t at = 0;
  while (at + 1 < pieces.size() && goal >= pieces[at]) goal -= pieces[at++];
  while (at > 0 && pieces[at] == 0) --at, goal = pieces[at];
  const auto chosen = static_cast<int64_t>(at);
  const Range mine = pieces_of(split, split.rank());
  if (chosen < mine.begin || chosen >= mine.end) return {kNoLogit, -1};
  const std::span<const float> own = piece(split, row.own, chosen);
  const int32_t place = kernels::invert_sum(own, row.inverse_temperature, stats.rows[index].max, goal);
  const int64_t first = chosen * split.whole_config().vocab_size / kTpPieces;
  return {own[static_cast<size_t>(place)], static_cast<int32_t>(first) + place};
}

void split_target_logprobs(TensorSplit& split, const at::Tensor& own, std::span<const float> inverse,
                           std::span<const kernels::LogitTarget> targets, bool with_entropy, kernels::LogitStats& stats,
                           std::span<kernels::TargetStats> out) {
  std::vector<SplitRow> rows;
  for (int64_t row = 0; row < own.size(0); ++row) rows.push_back({row_of(own, row), inverse[static_cast<size_t>(row)]});
  stats.rows = split_stats(split, rows, with_entropy).rows;
  const Range mine = split.vocabulary(split.rank());
  std::vector<Proposal> wanted;
  for (const auto& [row, id] : targets) {
    check(id >= 0 && id < split.whole_config().vocab_size, "a response id is outside the vocabulary");
    const bool here = id >= mine.begin && id < mine.end;
    wanted.push_back({here ? row_of(own, row)[static_cast<size_t>(id - mine.begin)] : kNoLogit, here ? id : -1});
  }
  wanted = greatest(split, std::move(wanted));
  for (size_t t = 0; t < targets.size(); ++t) {
    const auto row = static_cast<size_t>(targets[t].row);
    out[t] = {kernels::logprob({&wanted[t].logit, 1}, 0, inverse[row], stats.rows[row]), stats.rows[row].entropy};
  }
}

at::Tensor split_target_logprobs_backward(const TensorSplit& split, at::Tensor& own, std::span<const float> inverse,
                                          std::span<const kernels::LogitTarget> targets,
                                          const kernels::LogitStats& stats,
                                          std::span<const kernels::TargetSlopes> slopes) {
  const auto first = static_cast<int32_t>(split.vocabulary(split.rank()).begin);
  std::vector<std::vector<kernels::TargetGradient>> of_row(static_cast<size_t>(own.size(0)));
  std::vector<double> dentropy(of_row.size(), 0);
  for (size_t t = 0; t < targets.size(); ++t) {
    const auto row = static_cast<size_t>(targets[t].row);
    of_row[row].push_back({targets[t].id, static_cast<float>(slopes[t].logprob)});
    dentropy[row] += slopes[t].entropy;
  }
  for_rows(of_row.size(), [&](size_t i) {
    kernels::piece_backward(row_of(own, static_cast<int64_t>(i)), first, inverse[i], stats.rows[i], of_row[i],
                            static_cast<float>(dentropy[i]));
  });
  return own;
}

}  // namespace tandem
