// The law of exactness: the log-prob a token was drawn with is, bit for bit, the one the training forward computes, and
// neither it nor the token depends on what shared the batch or on how the scheduler cut it.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <unordered_set>

#include "base/rng.h"
#include "engine/engine.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Drawn = std::map<std::pair<uint64_t, uint32_t>, TrajectoryPtr>;  // by prompt and sample
using Requests = std::vector<std::shared_ptr<const GenerationRequest>>;

constexpr int64_t kMaxModelLen = 144, kLeastBlocks = kMaxModelLen / kernels::kKvBlock, kManyBlocks = 2000;

// Prompts around the block borders; every second one starts like its neighbour, so that blocks can be shared.
Requests requests(const std::vector<int64_t>& lengths, int64_t vocab, int64_t max_tokens, uint64_t seed) {
  constexpr double kTemperatures[] = {0.6, 1.0, 1.7};
  Requests all;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Philox random(seed, i / 2);
    auto prompt = std::make_shared<Prompt>();
    prompt->id = 1000 + i;
    for (int64_t t = 0; t < lengths[i]; ++t)
      prompt->token_ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(vocab))));
    SamplingParams params;
    params.temperature = kTemperatures[i % 3];
    params.ignore_eos = true;
    params.max_tokens = 1 + static_cast<int64_t>(i * 7 + 11) % max_tokens;
    params.seed = seed;
    all.push_back(std::make_shared<GenerationRequest>(
        GenerationRequest{prompt, params, static_cast<uint32_t>(1 + (i * 3 + 4) % 8), /*policy_version=*/5, {}}));
  }
  return all;
}

Requests tiny_requests(uint64_t seed = 7) {
  return requests({1, 70, 2, 15, 16, 17, 31, 32, 33, 48, 64, 64, 70, 70, 47, 63}, 96, 60, seed);
}

GeneratorOptions roomy(const Decoder& decoder) {
  GeneratorOptions options;
  options.num_blocks = kManyBlocks;
  options.max_model_len = kMaxModelLen;
  options.num_drawable = decoder.config().vocab_size;
  return options;
}

Drawn generate(const Decoder& decoder, const GeneratorOptions& options, const Requests& all, GeneratorStats* stats) {
  Drawn drawn;
  Generator generator(decoder, options, nullptr, [&](TrajectoryPtr t, const std::string&) {
    const auto key = std::pair{t->prompt->id, t->sample_index};
    EXPECT_TRUE(drawn.emplace(key, std::move(t)).second) << "a response came twice";
  });
  for (const auto& request : all) generator.add(request);
  generator.run();
  size_t expected = 0;
  for (const auto& request : all) expected += request->num_samples;
  EXPECT_EQ(drawn.size(), expected);
  if (stats != nullptr) *stats = generator.stats();
  return drawn;
}

// How many of the two lists' values differ in any bit.
int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  int64_t count = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) ++count;
  return count;
}

struct Tally {
  int64_t tokens = 0, differing = 0;
};

void expect_same_responses(const Drawn& drawn, const Drawn& baseline, Tally& tally) {
  for (const auto& [key, t] : drawn) {
    const Trajectory& other = *baseline.at(key);
    EXPECT_EQ(t->response_ids, other.response_ids) << "sample " << key.second << " of prompt " << key.first;
    EXPECT_EQ(t->mean_entropy, other.mean_entropy);
    tally.tokens += static_cast<int64_t>(t->rollout_logprobs.size());
    tally.differing += differing(t->rollout_logprobs, other.rollout_logprobs);
  }
}

void expect_training_agrees(const Decoder& decoder, const Drawn& drawn, int64_t max_micro_tokens, Tally& tally) {
  std::vector<PackItem> items;
  std::vector<double> temperatures;
  for (const auto& [key, t] : drawn) {
    items.push_back({t->prompt->token_ids, t->response_ids});
    temperatures.push_back(t->temperature);
  }
  const auto logprobs = packed_logprobs(decoder, items, temperatures, max_micro_tokens);
  size_t i = 0;
  for (const auto& [key, t] : drawn) {
    tally.tokens += static_cast<int64_t>(t->rollout_logprobs.size());
    tally.differing += differing(t->rollout_logprobs, logprobs[i++]);
  }
}

struct Setting {
  const char* name;
  int64_t num_blocks = kManyBlocks;
  bool prefix_caching = true;
  SchedulerOptions scheduler = {};
  int64_t preempt_every = 0;
  int threads = 1;
  bool preempts = false;  // must have happened, or the setting tests nothing
};

const Setting kSettings[] = {
    {"no prefix cache", kManyBlocks, false},
    {"set back every third pass, two threads", kManyBlocks, true, {}, 3, 2, true},
    {"set back every second pass, no prefix cache", kManyBlocks, false, {}, 2, 1, true},
    {"a cache of one sequence", kLeastBlocks, true, {}, 0, 1, true},
    {"a cache of two sequences, no prefix cache", 2 * kLeastBlocks, false, {}, 0, 1, true},
    {"prompts in pieces of 7", kManyBlocks, true, {64, 7, true}},
    {"prompts in pieces of 19, no prefix cache", kManyBlocks, false, {256, 19, true}, 0, 1},
    {"prompts whole, one sequence", kManyBlocks, true, {1, 8, false}},
    {"three sequences, small cache, pieces", kLeastBlocks + 3, true, {3, 33, true}, 11, 1, true},
    {"two threads", kManyBlocks, true, {}, 0, 2},
};

constexpr const char* kModels[] = {"llama_tied", "llama_bias", "qwen2", "qwen3_tied", "qwen3"};

GeneratorOptions options_of(const Setting& setting, const Decoder& decoder) {
  GeneratorOptions options = roomy(decoder);
  options.num_blocks = setting.num_blocks;
  options.prefix_caching = setting.prefix_caching;
  options.scheduler = setting.scheduler;
  options.preempt_every = setting.preempt_every;
  return options;
}

// Adds each sampled token, with all that came before it, to what was seen.
void add_contexts(const Drawn& drawn, size_t model, std::unordered_set<uint64_t>& seen) {
  for (const auto& [key, t] : drawn) {
    uint64_t hash = philox_key(model, std::bit_cast<uint64_t>(t->temperature));
    for (const TokenId id : t->prompt->token_ids) hash = philox_key(hash, static_cast<uint64_t>(id));
    for (const TokenId id : t->response_ids) seen.insert(hash = philox_key(hash, static_cast<uint64_t>(id)));
  }
}

class ExactTest : public testing::TestWithParam<const char*> {};

TEST_P(ExactTest, NoSettingChangesWhatIsDrawn) {
  const auto decoder = load_decoder(fs::path(TANDEM_TEST_DATA) / "models" / GetParam(), kMaxModelLen);
  const Requests all = tiny_requests();
  Tally tally;
  omp_set_num_threads(1);
  const Drawn baseline = generate(*decoder, roomy(*decoder), all, nullptr);
  for (const int64_t micro : {1, 90, 333, 100000}) {
    omp_set_num_threads(micro == 333 ? 2 : 1);
    expect_training_agrees(*decoder, baseline, micro, tally);
  }
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(setting.name);
    omp_set_num_threads(setting.threads);
    GeneratorStats stats;
    expect_same_responses(generate(*decoder, options_of(setting, *decoder), all, &stats), baseline, tally);
    EXPECT_TRUE(stats.num_preempted > 0 || !setting.preempts);
    EXPECT_TRUE(stats.num_cached_tokens == 0 || setting.prefix_caching);
  }
  EXPECT_EQ(tally.differing, 0) << "of " << tally.tokens;
  EXPECT_GT(tally.tokens, 20000);
  RecordProperty("tokens", static_cast<int>(tally.tokens));
}

// The order of requests, and which others there are, must not matter either.
TEST_P(ExactTest, NeighboursDoNotMatter) {
  const auto decoder = load_decoder(fs::path(TANDEM_TEST_DATA) / "models" / GetParam(), kMaxModelLen);
  Requests all = tiny_requests();
  const Drawn baseline = generate(*decoder, roomy(*decoder), all, nullptr);
  std::reverse(all.begin(), all.end());
  Tally tally;
  expect_same_responses(generate(*decoder, roomy(*decoder), all, nullptr), baseline, tally);
  for (const auto& request : all)
    expect_same_responses(generate(*decoder, roomy(*decoder), {request}, nullptr), baseline, tally);
  EXPECT_EQ(tally.differing, 0) << "of " << tally.tokens;
}

INSTANTIATE_TEST_SUITE_P(Models, ExactTest, testing::ValuesIn(kModels));

// Every setting draws tokens of its own, so that no log-prob is compared twice.
TEST(ExactTest, AHundredThousandDistinctTokens) {
  constexpr int64_t kMicroTokens[] = {1, 90, 333, 700, 100000};
  Tally tally;
  GeneratorStats sum;
  std::unordered_set<uint64_t> seen;
  for (size_t m = 0; m < std::size(kModels); ++m) {
    const auto decoder = load_decoder(fs::path(TANDEM_TEST_DATA) / "models" / kModels[m], kMaxModelLen);
    for (size_t s = 0; s < std::size(kSettings); ++s) {
      SCOPED_TRACE(std::string(kModels[m]) + ", " + kSettings[s].name);
      omp_set_num_threads(kSettings[s].threads);
      GeneratorStats stats;
      const Drawn drawn =
          generate(*decoder, options_of(kSettings[s], *decoder), tiny_requests(/*seed=*/100 + s), &stats);
      sum.num_preempted += stats.num_preempted, sum.num_cached_tokens += stats.num_cached_tokens;
      omp_set_num_threads(s % 3 == 0 ? 2 : 1);
      expect_training_agrees(*decoder, drawn, kMicroTokens[(m + s) % std::size(kMicroTokens)], tally);
      add_contexts(drawn, m, seen);
    }
  }
  fmt::print("{} log-probs compared, {} of them of distinct tokens in context; {} preemptions, {} cached tokens\n",
             tally.tokens, seen.size(), sum.num_preempted, sum.num_cached_tokens);
  EXPECT_EQ(tally.differing, 0) << "of " << tally.tokens;
  EXPECT_GE(seen.size(), 100000u);
  EXPECT_GT(sum.num_preempted, 100);
  EXPECT_GT(sum.num_cached_tokens, 1000);
}

TEST(ExactTest, RealModel) {
  const char* named = std::getenv("TANDEM_DEMO_MODEL");
  const char* home = std::getenv("HOME");
  const fs::path folder = named != nullptr  ? fs::path(named)
                          : home != nullptr ? fs::path(home) / ".cache/tandem/models/SmolLM2-135M-Instruct"
                                            : fs::path();
  if (!fs::exists(folder / "config.json")) GTEST_SKIP() << "no model in " << folder;
  omp_set_num_threads(2);
  const auto decoder = load_decoder(folder, kMaxModelLen);
  const Requests all = requests({5, 33, 16, 70}, decoder->config().vocab_size, 40, 3);
  const Drawn baseline = generate(*decoder, roomy(*decoder), all, nullptr);
  Tally tally;
  expect_training_agrees(*decoder, baseline, 200, tally);
  GeneratorOptions options = roomy(*decoder);
  options.num_blocks = 3 * kLeastBlocks;
  options.preempt_every = 15;
  options.scheduler = {16, 50, true};
  expect_same_responses(generate(*decoder, options, all, nullptr), baseline, tally);
  EXPECT_EQ(tally.differing, 0) << "of " << tally.tokens;
  EXPECT_GT(tally.tokens, 500);
  RecordProperty("tokens", static_cast<int>(tally.tokens));
}

}  // namespace
}  // namespace tandem
