// A vocabulary in pieces on 1 to 4 ranks: the same bits whoever has which, the draws of a whole row, and little that
// crosses.
#include "rollout/split_sampler.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/tensor_view.h"
#include "parallel/communicator_local.h"

namespace tandem {
namespace {

constexpr int64_t kVocab = 8 * 1300 + 5, kRows = 12;

ModelConfig model() {
  ModelConfig c;
  c.vocab_size = kVocab, c.hidden_size = 32, c.intermediate_size = 64, c.num_hidden_layers = 1;
  c.num_attention_heads = c.num_key_value_heads = 4, c.head_dim = 8;
  return c;
}

std::vector<std::vector<float>> some_logits() {
  Philox random(4);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocab));
  for (auto& row : rows)
    for (float& x : row) x = static_cast<float>(3 * random.normal());
  rows[1][kVocab - 1] = 40;         // nearly certain, and in the last piece
  rows[2][7] = rows[2][9000] = 50;  // equals: the lowest id is the likeliest
  return rows;
}

std::vector<SamplingParams> some_params() {
  std::vector<SamplingParams> all(kRows);
  for (SamplingParams& p : all) p.stop_token_ids = {3, 9000}, p.ignore_eos = true;
  all[2].temperature = all[3].temperature = all[4].temperature = 0;
  all[5].temperature = 0.7;
  all[6].top_k = 5, all[7].top_p = 0.8, all[8].min_p = 0.01;
  all[9].top_logprobs = 3;
  return all;
}

bool may_end(size_t row) { return row % 2 == 0; }
double uniform_of(size_t row) { return 0.03 + 0.079 * static_cast<double>(row); }

struct FoundOfRows {
  std::vector<DrawnToken> drawn;
  std::vector<kernels::TargetStats> targets;
  std::vector<float> gradient;  // of this rank's columns
};

FoundOfRows with_pieces(TensorSplit& split, const std::vector<std::vector<float>>& rows,
                        const std::vector<SamplingParams>& params, int64_t num_drawable) {
  const Range mine = split.vocabulary(split.rank());
  at::Tensor own = kernels::empty({kRows, mine.size()});
  for (size_t r = 0; r < rows.size(); ++r)
    std::copy_n(rows[r].begin() + mine.begin, mine.size(), kernels::f32(own) + static_cast<int64_t>(r) * mine.size());
  std::vector<SplitDraw> draws;
  std::vector<float> inverse;
  std::vector<kernels::LogitTarget> targets;
  std::vector<kernels::TargetSlopes> slopes;
  for (size_t r = 0; r < rows.size(); ++r) {
    draws.push_back({{kernels::f32(own) + static_cast<int64_t>(r) * mine.size(), static_cast<size_t>(mine.size())},
                     params[r],
                     may_end(r),
                     uniform_of(r)});
    inverse.push_back(static_cast<float>(1 / params[r].effective_temperature()));
    targets.push_back({static_cast<int32_t>(r), static_cast<int32_t>(r * 941 % kVocab)});
    slopes.push_back({0.5 + 0.1 * static_cast<double>(r), 0.2});
  }
  FoundOfRows found;
  for (SplitDrawn& drawn : draw_tokens(split, draws, num_drawable)) {
    EXPECT_EQ(drawn.failure, nullptr);
    found.drawn.push_back(drawn.token);
  }
  found.targets.resize(rows.size());
  kernels::LogitStats stats;
  split_target_logprobs(split, own, inverse, targets, true, stats, found.targets);
  split_target_logprobs_backward(split, own, inverse, targets, stats, slopes);
  found.gradient.assign(kernels::f32(own), kernels::f32(own) + own.numel());
  return found;
}

TEST(SplitSampler, AnyNumberOfRanksDrawsWhatAWholeRowGives) {
  const auto rows = some_logits();
  const auto params = some_params();
  for (const int64_t num_drawable : {kVocab, kVocab - 100}) {
    TensorSplit alone(model(), nullptr);
    const FoundOfRows wanted = with_pieces(alone, rows, params, num_drawable);
    for (size_t r = 0; r < rows.size(); ++r) {
      const DrawnToken whole = draw_token(rows[r], params[r], num_drawable, may_end(r), uniform_of(r));
      EXPECT_EQ(wanted.drawn[r].id, whole.id) << r;
      EXPECT_NEAR(wanted.drawn[r].logprob, whole.logprob, 2e-6 * (1 + std::abs(whole.logprob)));
      EXPECT_NEAR(wanted.drawn[r].entropy, whole.entropy, 1e-5);
      EXPECT_EQ(wanted.drawn[r].top.size(), whole.top.size());
      for (size_t i = 0; i < whole.top.size(); ++i) EXPECT_EQ(wanted.drawn[r].top[i].id, whole.top[i].id);
    }
    EXPECT_EQ(wanted.drawn[2].id, 7);
    for (const int ranks : {2, 3, 4})
      run_ranks(ranks, [&](Communicator& world) {
        omp_set_num_threads(1);
        TensorSplit split(model(), world.duplicate());
        const FoundOfRows found = with_pieces(split, rows, params, num_drawable);
        for (size_t r = 0; r < rows.size(); ++r) {
          EXPECT_EQ(found.drawn[r].id, wanted.drawn[r].id) << r << " of " << ranks;
          EXPECT_EQ(found.drawn[r].logprob, wanted.drawn[r].logprob);
          EXPECT_EQ(found.drawn[r].entropy, wanted.drawn[r].entropy);
          EXPECT_EQ(found.targets[r].logprob, wanted.targets[r].logprob);
          EXPECT_EQ(found.targets[r].entropy, wanted.targets[r].entropy);
        }
        const Range mine = split.vocabulary(split.rank());
        for (int64_t r = 0; r < kRows; ++r)
          EXPECT_EQ(
              std::memcmp(found.gradient.data() + r * mine.size(), wanted.gradient.data() + r * kVocab + mine.begin,
                          static_cast<size_t>(mine.size()) * sizeof(float)),
              0);
      });
  }
}

// What a rank draws with is what it trains with.
TEST(SplitSampler, ADrawnTokenHasTheLogprobOfTraining) {
  const auto rows = some_logits();
  TensorSplit alone(model(), nullptr);
  const FoundOfRows first = with_pieces(alone, rows, std::vector<SamplingParams>(kRows), kVocab);
  std::vector<float> inverse(kRows, 1.0F);
  std::vector<kernels::LogitTarget> targets;
  at::Tensor own = kernels::empty({kRows, kVocab});
  for (int64_t r = 0; r < kRows; ++r) {
    std::ranges::copy(rows[static_cast<size_t>(r)], kernels::f32(own) + r * kVocab);
    targets.push_back({static_cast<int32_t>(r), first.drawn[static_cast<size_t>(r)].id});
  }
  kernels::LogitStats stats;
  std::vector<kernels::TargetStats> out(kRows);
  split_target_logprobs(alone, own, inverse, targets, false, stats, out);
  for (size_t r = 0; r < kRows; ++r) EXPECT_EQ(out[r].logprob, first.drawn[r].logprob);
}

TEST(SplitSampler, RowsStayWhereTheyAre) {
  const auto rows = some_logits();
  run_ranks(2, [&](Communicator& world) {
    omp_set_num_threads(1);
    class Counting : public Communicator {
     public:
      Counting(std::unique_ptr<Communicator> real, int64_t& bytes)
          : Communicator(real->rank(), real->size()), real_(std::move(real)), bytes_(bytes) {}
      std::unique_ptr<Communicator> make_part(std::span<const int> ranks) override { return real_->split(ranks); }

     private:
      void transfer(std::string_view operation, std::span<const SendPart> sends,
                    std::span<const ReceivePart> receives) override {
        for (const SendPart& part : sends) bytes_ += static_cast<int64_t>(part.bytes.size());
        real_->exchange(operation, sends, receives);
      }
      std::unique_ptr<Communicator> real_;
      int64_t& bytes_;
    };
    int64_t bytes = 0;
    TensorSplit split(model(), std::make_unique<Counting>(world.duplicate(), bytes));
    with_pieces(split, rows, std::vector<SamplingParams>(kRows), kVocab);
    // Of each row twice (drawn and trained): a maximum, at most 5 pieces of two sums, a proposal.
    EXPECT_LE(bytes, kRows * 2 * (4 + 5 * 16 + 8));
    EXPECT_GT(bytes, 0);
  });
}

TEST(SplitSampler, AFailureIsItsDrawsAlone) {
  auto rows = some_logits();
  rows[0][5000] = std::nanf("");
  run_ranks(2, [&](Communicator& world) {
    omp_set_num_threads(1);
    TensorSplit split(model(), world.duplicate());
    const Range mine = split.vocabulary(split.rank());
    const SamplingParams params;
    std::vector<SplitDraw> draws;
    for (size_t r = 0; r < 2; ++r)
      draws.push_back(
          {std::span<const float>(rows[r]).subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.size())),
           params, true, 0.5});
    const std::vector<SplitDrawn> drawn = draw_tokens(split, draws, kVocab);
    EXPECT_THROW(std::rethrow_exception(drawn[0].failure), DataError);
    EXPECT_EQ(drawn[1].failure, nullptr);
  });
}

}  // namespace
}  // namespace tandem
