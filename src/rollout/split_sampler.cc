#include "rollout/split_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/tensor_view.h"

namespace tandem {
namespace {

constexpr float kBarred = -std::numeric_limits<float>::infinity();

bool wants_row(const SamplingParams& p) {
  return p.top_logprobs > 0 || (p.temperature > 0 && (p.top_k > 0 || p.top_p < 1.0 || p.min_p > 0));
}

float inverse_of(const SplitDraw& draw) { return static_cast<float>(1.0 / draw.params.effective_temperature()); }

// This rank's columns with what may not be drawn at −∞.
std::vector<float> allowed_columns(const TensorSplit& split, const SplitDraw& draw, int64_t num_drawable) {
  std::vector<float> own(draw.own.begin(), draw.own.end());
  const Range mine = split.vocabulary(split.rank());
  for (int64_t id = std::max(mine.begin, num_drawable); id < mine.end; ++id)
    own[static_cast<size_t>(id - mine.begin)] = kBarred;
  for (const TokenId id : barred_ids(draw.params, draw.may_end))
    if (id >= mine.begin && id < mine.end) own[static_cast<size_t>(id - mine.begin)] = kBarred;
  return own;
}

Proposal likeliest_column(const TensorSplit& split, std::span<const float> allowed) {
  Proposal best{kBarred, -1};
  const auto first = static_cast<int32_t>(split.vocabulary(split.rank()).begin);
  for (size_t i = 0; i < allowed.size(); ++i)
    if (allowed[i] > best.logit) best = {allowed[i], first + static_cast<int32_t>(i)};
  return best;
}

template <class Fn>
SplitDrawn attempted_draw(Fn draw) {
  try {
    return {draw(), nullptr};
  } catch (const DataError&) {
    return {{}, std::current_exception()};
  }
}

}  // namespace

std::vector<SplitDrawn> draw_tokens(TensorSplit& split, std::span<const SplitDraw> draws, int64_t num_drawable) {
  std::vector<SplitRow> rows, restricted_rows;
  std::vector<std::vector<float>> allowed;
  std::vector<size_t> gathered;
  const bool all_drawable = num_drawable >= split.whole_config().vocab_size;
  const auto restricted = [&](const SplitDraw& draw) {
    return !all_drawable || !barred_ids(draw.params, draw.may_end).empty();
  };
  for (const SplitDraw& draw : draws) rows.push_back({draw.own, inverse_of(draw)});
  const SplitStats stats = split_stats(split, rows, true);

  for (size_t i = 0; i < draws.size(); ++i) {
    allowed.push_back(restricted(draws[i]) ? allowed_columns(split, draws[i], num_drawable) : std::vector<float>());
    if (wants_row(draws[i].params)) gathered.push_back(i);
  }
  std::vector<size_t> place(draws.size());  // among the restricted
  for (size_t i = 0; i < draws.size(); ++i) {
    if (allowed[i].empty()) continue;
    place[i] = restricted_rows.size();
    restricted_rows.push_back({allowed[i], rows[i].inverse_temperature});
  }
  const SplitStats of_allowed = restricted_rows.empty() ? SplitStats{} : split_stats(split, restricted_rows, false);

  std::vector<Proposal> proposals;
  for (size_t i = 0; i < draws.size(); ++i) {
    const bool whole = allowed[i].empty();
    if (draws[i].params.temperature == 0) {
      proposals.push_back(likeliest_column(split, whole ? draws[i].own : allowed[i]));
    } else {
      proposals.push_back(
          whole ? propose_inverse(split, rows[i], stats, i, draws[i].uniform)
                : propose_inverse(split, restricted_rows[place[i]], of_allowed, place[i], draws[i].uniform));
    }
  }
  const std::vector<Proposal> chosen = greatest(split, std::move(proposals));

  std::vector<SplitDrawn> out(draws.size());
  for (size_t i = 0; i < draws.size(); ++i)
    out[i] = attempted_draw([&]() -> DrawnToken {
      const kernels::RowStats& of_row = stats.rows[i];
      if (!std::isfinite(of_row.max) || !std::isfinite(of_row.log_sum)) return checked_draw(-1, 0, 0);
      if (chosen[i].id < 0 || chosen[i].logit == kBarred) return checked_draw(-2, 0, 0);
      const float logprob = kernels::logprob({&chosen[i].logit, 1}, 0, rows[i].inverse_temperature, of_row);
      return checked_draw(chosen[i].id, logprob, of_row.entropy);
    });
  if (gathered.empty()) return out;

  const int64_t vocab = split.whole_config().vocab_size;
  at::Tensor own = kernels::empty({std::ssize(gathered), std::ssize(draws[0].own)});
  for (size_t i = 0; i < gathered.size(); ++i)
    std::ranges::copy(draws[gathered[i]].own, kernels::f32(own) + static_cast<int64_t>(i) * own.size(1));
  at::Tensor whole = kernels::empty({own.size(0), vocab});
  split.gather_vocabulary(own, whole);
  for (size_t i = 0; i < gathered.size(); ++i) {
    const SplitDraw& draw = draws[gathered[i]];
    const std::span<const float> row(kernels::f32(whole) + static_cast<int64_t>(i) * vocab, static_cast<size_t>(vocab));
    out[gathered[i]] = attempted_draw([&] {
      return draw_token(row, stats.rows[gathered[i]], draw.params, num_drawable, draw.may_end, draw.uniform);
    });
  }
  return out;
}

}  // namespace tandem
