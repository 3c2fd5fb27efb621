// Attention over block tables against a plain softmax in float64, its gradient, and what its bits may not depend on.
#include <numeric>

#include "kernels/attention.h"
#include "kernels/reference.h"

namespace tandem::kernels {
namespace {

struct Problem {
  HeadShape heads;
  int64_t tokens = 0, num_blocks = 0;
  AttentionBatch batch;
  std::vector<SlotWrite> writes;
  // For the reference: which token holds position p of span s.
  std::vector<std::vector<int32_t>> token_at;
};

class Builder {
 public:
  explicit Builder(HeadShape heads) { problem_.heads = heads; }

  // A sequence of its own: `first` tokens of the batch are given to it as history, the last `queries` of it ask.
  void add(int32_t length, int32_t queries) {
    const int32_t first = static_cast<int32_t>(problem_.tokens);
    problem_.tokens += length;
    std::vector<int32_t> tokens(length), table;
    std::iota(tokens.begin(), tokens.end(), first);
    for (int32_t p = 0; p < length; p += kKvBlock) table.push_back(next_block());
    write(tokens, 0, table);
    span(first + length - queries, queries, length - queries, table, tokens);
  }

  // A prompt and responses that share its whole blocks; its tail is written again for each of them.
  void add_shared(int32_t prompt, const std::vector<int32_t>& responses) {
    const int32_t first = static_cast<int32_t>(problem_.tokens);
    std::vector<int32_t> tokens(prompt), table;
    std::iota(tokens.begin(), tokens.end(), first);
    problem_.tokens += prompt;
    for (int32_t p = 0; p < prompt; p += kKvBlock) table.push_back(next_block());
    write(tokens, 0, table);
    span(first, prompt, 0, table, tokens);
    for (const int32_t length : responses) {
      const int32_t whole = prompt / kKvBlock, begin = static_cast<int32_t>(problem_.tokens);
      auto own = tokens;
      for (int32_t i = 0; i < length; ++i) own.push_back(begin + i);
      problem_.tokens += length;
      std::vector<int32_t> own_table(table.begin(), table.begin() + whole);
      for (int32_t p = whole * kKvBlock; p < prompt + length; p += kKvBlock) own_table.push_back(next_block());
      write(own, whole * kKvBlock, own_table);
      span(begin, length, prompt, own_table, own);
    }
  }

  Problem build() {
    for (auto& block : problem_.batch.block_tables) block = renamed(block);
    for (auto& write : problem_.writes) write.slot = renamed(write.slot / kKvBlock) * kKvBlock + write.slot % kKvBlock;
    problem_.num_blocks = 2 * blocks_ + 1;
    return problem_;
  }

 private:
  int32_t next_block() { return blocks_++; }
  int32_t renamed(int32_t block) const { return 2 * (blocks_ - 1 - block) + 1; }  // scattered, with gaps
  void write(const std::vector<int32_t>& tokens, int32_t from, const std::vector<int32_t>& table) {
    for (size_t p = from; p < tokens.size(); ++p)
      problem_.writes.push_back({tokens[p], static_cast<int32_t>(table[p / kKvBlock] * kKvBlock + p % kKvBlock)});
  }
  void span(int32_t first, int32_t count, int32_t position, const std::vector<int32_t>& table,
            std::vector<int32_t> tokens) {
    auto& all = problem_.batch.block_tables;
    problem_.batch.spans.push_back({first, count, position, static_cast<int32_t>(all.size())});
    all.insert(all.end(), table.begin(), table.end());
    problem_.token_at.push_back(std::move(tokens));
  }
  Problem problem_;
  int32_t blocks_ = 0;
};

struct Inputs {
  at::Tensor q, k, v;
};

Inputs random_inputs(const Problem& p, double scale = 1) {
  const auto [heads, kv_heads, dim] = p.heads;
  return {random_tensor({p.tokens, heads, dim}, 1, scale), random_tensor({p.tokens, kv_heads, dim}, 2, scale),
          random_tensor({p.tokens, kv_heads, dim}, 3)};
}

struct Outputs {
  at::Tensor kv, out, logsumexp;
};

// Rows of tokens that ask nothing stay 0.
Outputs run(const Problem& p, const Inputs& in) {
  Outputs o{filled({p.num_blocks, 2, p.heads.num_kv_heads, p.heads.head_dim * kKvBlock}, NAN), zeros(in.q.sizes()),
            zeros({p.tokens, p.heads.num_heads})};
  write_kv(in.k, in.v, p.writes, o.kv);
  attention(in.q, o.kv, p.batch, o.out, o.logsumexp);
  return o;
}

struct Reference {
  Doubles out, logsumexp;
};

Reference softmax_attention(const Problem& p, const Doubles& q, const Doubles& k, const Doubles& v) {
  const auto [heads, kv_heads, dim] = p.heads;
  Reference r{Doubles(q.size()), Doubles(p.tokens * heads)};
  for (size_t s = 0; s < p.batch.spans.size(); ++s) {
    const auto& span = p.batch.spans[s];
    for (int64_t t = span.first_token; t < span.first_token + span.num_tokens; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t visible = span.first_position + (t - span.first_token) + 1, shared = h / (heads / kv_heads);
        Doubles scores(visible);
        for (int64_t j = 0; j < visible; ++j)
          for (int64_t d = 0; d < dim; ++d)
            scores[j] += q[(t * heads + h) * dim + d] * k[(p.token_at[s][j] * kv_heads + shared) * dim + d] /
                         std::sqrt(static_cast<double>(dim));
        const double top = *std::ranges::max_element(scores);
        double sum = 0;
        for (double& x : scores) sum += x = std::exp(x - top);
        r.logsumexp[t * heads + h] = top + std::log(sum);
        for (int64_t j = 0; j < visible; ++j)
          for (int64_t d = 0; d < dim; ++d)
            r.out[(t * heads + h) * dim + d] += scores[j] / sum * v[(p.token_at[s][j] * kv_heads + shared) * dim + d];
      }
  }
  return r;
}

const std::vector<HeadShape> kHeads = {{4, 2, 8}, {3, 1, 6}, {2, 2, 10}, {9, 3, 20}, {5, 5, 2}};

TEST(Attention, AgreesWithFloat64) {
  for (const HeadShape heads : kHeads)
    for (const double scale : {1.0, 6.0}) {
      Builder builder(heads);
      for (const int32_t length : {1, 2, 15, 16, 17, 32, 33, 50}) builder.add(length, length);
      builder.add(40, 1), builder.add(33, 5), builder.add(16, 1);
      builder.add_shared(37, {1, 11, 12});
      builder.add_shared(5, {3, 20});
      const Problem problem = builder.build();
      const Inputs in = random_inputs(problem, scale);
      const Outputs got = run(problem, in);
      const Reference wanted = softmax_attention(problem, doubles(in.q), doubles(in.k), doubles(in.v));
      SCOPED_TRACE(testing::Message() << heads.num_heads << " " << heads.head_dim << " " << scale);
      expect_close(floats(got.out), wanted.out, scale == 1 ? 3e-6 : 5e-5, "out");
      expect_close(floats(got.logsumexp), wanted.logsumexp, 3e-6, "logsumexp");
    }
}

// Scores near +-1e4 neither overflow nor lose the row.
TEST(Attention, ExtremeScores) {
  Builder builder({2, 1, 8});
  builder.add(35, 35);
  const Problem problem = builder.build();
  const Inputs in = random_inputs(problem, 100);
  const Outputs got = run(problem, in);
  const Reference wanted = softmax_attention(problem, doubles(in.q), doubles(in.k), doubles(in.v));
  for (const float x : floats(got.out)) ASSERT_TRUE(std::isfinite(x));
  expect_close(floats(got.logsumexp), wanted.logsumexp, 3e-6, "logsumexp");
}

// A query's bits: in a prefill of the whole sequence, in a chunk, alone, beside others, with other blocks and threads.
TEST(Attention, BitsDependOnTheSequenceAlone) {
  const HeadShape heads{6, 2, 20};
  const int32_t length = 53;
  Builder whole(heads);
  whole.add(length, length);
  const Problem prefill = whole.build();
  const Inputs in = random_inputs(prefill);
  const Outputs reference = run(prefill, in);
  const auto rows = [&](const Outputs& o, int64_t first, int64_t count) {
    return floats(o.out).subspan(first * 120, count * 120);
  };
  const auto lse = [&](const Outputs& o, int64_t first, int64_t count) {
    return floats(o.logsumexp).subspan(first * 6, count * 6);
  };
  for (const int threads : {1, 2, 3})
    with_threads(threads, [&] {
      for (const int32_t queries : {1, 2, 3, 5, 20, 37}) {
        Builder builder(heads);
        builder.add(length, queries);
        const Outputs got = run(builder.build(), in);
        const int64_t first = length - queries;
        EXPECT_TRUE(same_bits(rows(got, first, queries), rows(reference, first, queries))) << queries;
        EXPECT_TRUE(same_bits(lse(got, first, queries), lse(reference, first, queries))) << queries;
      }
      // The same sequence behind another, and as a prompt of 37 with a response of 16 that shares its blocks.
      Builder beside(heads);
      beside.add(19, 19), beside.add(length, length);
      const Problem two = beside.build();
      Inputs both = random_inputs(two);
      for (const auto& [from, to] : {std::pair{&in.q, &both.q}, {&in.k, &both.k}, {&in.v, &both.v}})
        std::ranges::copy(floats(*from), floats(*to).end() - from->numel());
      const Outputs got = run(two, both);
      EXPECT_TRUE(same_bits(rows(got, 19, length), rows(reference, 0, length)));
      Builder shared(heads);
      shared.add_shared(37, {16});
      EXPECT_TRUE(same_bits(rows(run(shared.build(), in), 0, length), rows(reference, 0, length)));
    });
}

TEST(Attention, CopiesABlock) {
  at::Tensor kv = random_tensor({3, 2, 2, 6 * kKvBlock}, 1);
  const auto before = doubles(kv);
  const BlockCopy copy{2, 0};
  copy_kv_blocks({&kv, 1}, {&copy, 1});
  const size_t size = before.size() / 3;
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(floats(kv)[i], before[i < size ? i + 2 * size : i]);
}

TEST(AttentionBackward, AgreesWithDifferences) {
  for (const HeadShape heads : {HeadShape{4, 2, 6}, {2, 1, 10}}) {
    Builder builder(heads);
    builder.add(3, 3), builder.add(18, 18);
    builder.add_shared(17, {2, 1});
    builder.add_shared(2, {1, 15});
    const Problem problem = builder.build();
    const Inputs in = random_inputs(problem);
    const Outputs o = run(problem, in);
    const auto dout = random_tensor(in.q.sizes(), 9);
    at::Tensor dq = filled(in.q.sizes(), NAN), dk = filled(in.k.sizes(), NAN), dv = filled(in.v.sizes(), NAN);
    attention_backward(dout, in.q, o.kv, problem.batch, problem.writes, o.out, o.logsumexp, dq, dk, dv);
    const Doubles q = doubles(in.q), k = doubles(in.k), v = doubles(in.v);
    const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
      return dot(floats(dout), softmax_attention(problem, a, b, c).out);
    };
    expect_close(floats(dq), numeric_gradient([&](const Doubles& x) { return loss(x, k, v); }, q), 2e-5, "dq");
    expect_close(floats(dk), numeric_gradient([&](const Doubles& x) { return loss(q, x, v); }, k), 2e-5, "dk");
    expect_close(floats(dv), numeric_gradient([&](const Doubles& x) { return loss(q, k, x); }, v), 2e-5, "dv");
  }
}

TEST(AttentionBackward, ThreadsChangeNoBit) {
  Builder builder({4, 2, 20});
  builder.add_shared(40, {30, 7, 16}), builder.add(70, 70), builder.add_shared(3, {5, 6});
  const Problem problem = builder.build();
  const Inputs in = random_inputs(problem);
  const Outputs o = run(problem, in);
  const auto dout = random_tensor(in.q.sizes(), 9);
  std::vector<at::Tensor> all[3];
  for (const int threads : {1, 2, 3})
    with_threads(threads, [&] {
      at::Tensor dq = empty(in.q.sizes()), dk = empty(in.k.sizes()), dv = empty(in.v.sizes());
      attention_backward(dout, in.q, o.kv, problem.batch, problem.writes, o.out, o.logsumexp, dq, dk, dv);
      all[threads - 1] = {dq, dk, dv};
    });
  for (int t = 1; t < 3; ++t)
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(floats(all[0][i]), floats(all[t][i]))) << t << " " << i;
}

}  // namespace
}  // namespace tandem::kernels
