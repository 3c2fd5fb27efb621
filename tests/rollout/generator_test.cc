#include "rollout/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/scratch_folder.h"
#include "support/bigram.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Finished {
  TrajectoryPtr trajectory;
  std::string text, streamed;
};

struct Model {
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Tokenizer> tokenizer;  // null where the folder has none
};

Model load(const fs::path& folder) {
  ModelConfig config = load_model_config(folder);
  DecoderWeights weights = empty_weights(config);
  load_weights(WeightFolder(folder), config, weights);
  Model model;
  model.decoder = std::make_unique<Decoder>(std::move(config), std::move(weights), 256);
  if (fs::exists(folder / "tokenizer.json"))
    model.tokenizer = std::make_unique<Tokenizer>(Tokenizer::from_folder(folder));
  return model;
}

// `ND!` is one token here, id 259.
void add_token(const fs::path& folder) {
  auto tokenizer = nlohmann::json::parse(read_file(folder / "tokenizer.json"));
  auto token = tokenizer["added_tokens"][0];
  token["id"] = 259, token["content"] = "ND!", token["special"] = false;
  tokenizer["added_tokens"].push_back(token);
  std::ofstream(folder / "tokenizer.json") << tokenizer;
}

// One model for all the scripted cases: rows of tokens that no other case uses.
const Model& scripted() {
  static const Model model = [] {
    const ScratchFolder folder;
    BigramTable table;
    const auto then = [&](int32_t last, int32_t next) { table.rows[last] = {{next, 0.F}}; };
    then('a', '\n'), then('b', '\n'), then('c', '\n'), then('d', '\n');  // a \n a \n ... from 'a'
    table.rows['\n'] = {{'a', 0.F}, {'b', -1e-3F}};
    then('0', 'E'), then('E', 259), then(259, '4'), then('4', '4');  // END! 4 4 4
    const float p99 = std::log(0.99F), p01 = std::log(0.01F);
    table.rows['p'] = {{kBigramImEnd, p99}, {'q', p01}};  // ends at once unless it may not
    table.rows['q'] = {{kBigramEndOfText, p99}, {'p', p01}};
    table.rows['s'] = {{0, 2.F}, {1, 1.F}, {2, 0.F}};  // SAMP-1
    table.rows['v'] = {{1000, 5.F}, {'w', 0.F}};       // likeliest is an id that no text has
    write_bigram_model(folder.path(), table);
    add_token(folder.path());
    return load(folder.path());
  }();
  return model;
}

GeneratorOptions options_for(const Model& model) {
  GeneratorOptions options;
  options.num_blocks = 200;
  options.max_model_len = 200;
  options.num_drawable = model.decoder->config().vocab_size;
  if (model.tokenizer)
    options.num_drawable = std::min<int64_t>(options.num_drawable, static_cast<int64_t>(model.tokenizer->vocab_size()));
  return options;
}

PromptPtr prompt_of(std::vector<TokenId> ids, uint64_t id = 1) {
  auto prompt = std::make_shared<Prompt>();
  prompt->id = id;
  prompt->token_ids = std::move(ids);
  return prompt;
}

// The samples of one prompt, by sample index.
std::vector<Finished> answer(const Model& model, const std::vector<TokenId>& prompt, const SamplingParams& params,
                             uint32_t num_samples = 1) {
  std::vector<Finished> all(num_samples);
  Generator generator(*model.decoder, options_for(model), model.tokenizer.get(),
                      [&](TrajectoryPtr t, const std::string& text) {
                        Finished& finished = all.at(t->sample_index);
                        finished.trajectory = std::move(t);
                        finished.text = text;
                      });
  GenerationRequest request{prompt_of(prompt), params, num_samples, 0, {}};
  if (model.tokenizer)
    request.on_text = [&](uint32_t sample, std::string_view piece) { all.at(sample).streamed += piece; };
  generator.add(std::make_shared<GenerationRequest>(request));
  generator.run();
  for (const Finished& finished : all) {
    EXPECT_NE(finished.trajectory, nullptr);
    EXPECT_EQ(finished.trajectory->response_ids.size(), finished.trajectory->rollout_logprobs.size());
    EXPECT_EQ(finished.streamed, finished.text);
  }
  return all;
}

SamplingParams greedy(int64_t max_tokens) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  params.eos_ids = {kBigramImEnd};
  return params;
}

// ENG-2 (i). From '\n' the chain is a \n a \n a \n: the stop is in it from the second token on.
TEST(Generator, StopStringsWaitForMinTokens) {
  SamplingParams params = greedy(20);
  params.stop = {"\n"};
  params.min_tokens = 6;
  const Finished six = answer(scripted(), {'\n'}, params)[0];
  EXPECT_EQ(six.trajectory->response_ids, (std::vector<TokenId>{'a', '\n', 'a', '\n', 'a', '\n'}));
  EXPECT_EQ(six.trajectory->stop_reason, StopReason::kStopToken);
  EXPECT_EQ(six.text, "a\na\na");
  params.min_tokens = 5;
  EXPECT_EQ(answer(scripted(), {'\n'}, params)[0].trajectory->response_ids.size(), 6U) << "an old stop does not count";
  params.min_tokens = 0;
  const Finished two = answer(scripted(), {'\n'}, params)[0];
  EXPECT_EQ(two.trajectory->response_ids.size(), 2U);
  EXPECT_EQ(two.text, "a");
}

// ENG-2 (ii), with one end id and with two.
TEST(Generator, NoEndIdBeforeMinTokens) {
  SamplingParams params = greedy(10);
  params.temperature = 1;
  params.min_tokens = 3;
  params.eos_ids = {kBigramImEnd, kBigramEndOfText};
  for (const Finished& finished : answer(scripted(), {'p'}, params, 50)) {
    const auto& ids = finished.trajectory->response_ids;
    ASSERT_GE(ids.size(), 3U);
    EXPECT_EQ(ids[0], 'q');
    EXPECT_EQ(ids[1], 'p');
    const bool ended = ids.back() == kBigramImEnd || ids.back() == kBigramEndOfText;
    EXPECT_EQ(finished.trajectory->stop_reason, ended ? StopReason::kEndOfText : StopReason::kLength);
  }
  params.eos_ids = {kBigramImEnd};
  params.min_tokens = 0;
  EXPECT_EQ(answer(scripted(), {'p'}, params)[0].trajectory->response_ids, std::vector<TokenId>{kBigramImEnd});
  params.ignore_eos = true;  // goes on past it: after im_end comes im_end
  const Finished on = answer(scripted(), {'p'}, params)[0];
  EXPECT_EQ(on.trajectory->response_ids.size(), 10U);
  EXPECT_EQ(on.trajectory->stop_reason, StopReason::kLength);
}

// ENG-2 (iii): the tokens are E and ND!; both stay in the response, the text ends before END.
TEST(Generator, AStopOverTokenBordersIsCutFromTheText) {
  SamplingParams params = greedy(10);
  params.stop = {"END"};
  const Finished finished = answer(scripted(), {'0'}, params)[0];
  EXPECT_EQ(finished.text, "");
  EXPECT_EQ(finished.trajectory->response_ids, (std::vector<TokenId>{'E', 259}));
  EXPECT_EQ(finished.trajectory->stop_reason, StopReason::kStopToken);
  params.stop = {"4444"};
  EXPECT_EQ(answer(scripted(), {'0'}, params)[0].text, "END!");
}

TEST(Generator, StopIdsEndAResponse) {
  SamplingParams params = greedy(10);
  params.stop_token_ids = {259};
  const Finished finished = answer(scripted(), {'0'}, params)[0];
  EXPECT_EQ(finished.trajectory->response_ids, (std::vector<TokenId>{'E', 259}));
  EXPECT_EQ(finished.trajectory->stop_reason, StopReason::kStopToken);
}

TEST(Generator, IdsBeyondTheTokenizerAreNeverDrawn) {
  EXPECT_EQ(answer(scripted(), {'v'}, greedy(1))[0].trajectory->response_ids, std::vector<TokenId>{'w'});
  SamplingParams params = greedy(1);
  params.temperature = 1;
  for (const Finished& finished : answer(scripted(), {'v'}, params, 20))
    EXPECT_EQ(finished.trajectory->response_ids, std::vector<TokenId>{'w'});
}

TEST(Generator, LengthLimits) {
  EXPECT_EQ(answer(scripted(), {'4'}, greedy(3))[0].trajectory->stop_reason, StopReason::kLength);
  const Finished full = answer(scripted(), std::vector<TokenId>(190, '4'), greedy(100))[0];
  EXPECT_EQ(full.trajectory->response_ids.size(), 10U) << "max_model_len is 200";
  EXPECT_EQ(full.trajectory->stop_reason, StopReason::kLength);
  expect_names(error_of<DataError>([] { answer(scripted(), std::vector<TokenId>(200, '4'), greedy(1)); }),
               {"prompt 1", "200"});
  EXPECT_THROW(answer(scripted(), {}, greedy(1)), DataError);
}

// ENG-2 (iv), (v).
TEST(Generator, RefusesWhatNoResponseCouldSatisfy) {
  SamplingParams params = greedy(4);
  params.stop = {""};
  expect_names(error_of<ConfigError>([&] { answer(scripted(), {'4'}, params); }), {"stop"});
  params = greedy(4);
  params.min_tokens = 5;
  expect_names(error_of<ConfigError>([&] { answer(scripted(), {'4'}, params); }), {"min_tokens", "max_tokens"});
}

// SAMP-1: log-probs are those at the temperature sampled with.
TEST(Generator, LogProbsAreAtTheTemperature) {
  const std::map<double, std::vector<double>> expected = {{0.6, {-0.202573, -1.869240, -3.535906}},
                                                          {1.0, {-0.407606, -1.407606, -2.407606}},
                                                          {2.0, {-0.680270, -1.180270, -1.680270}}};
  const std::map<double, double> entropies = {{0.6, 0.556749}, {1.0, 0.832396}};
  for (const auto& [temperature, logprobs] : expected) {
    SamplingParams params = greedy(1);
    params.temperature = temperature;
    std::map<TokenId, int> seen;
    for (const Finished& finished : answer(scripted(), {'s'}, params, 300)) {
      const TokenId id = finished.trajectory->response_ids[0];
      ++seen[id];
      EXPECT_NEAR(finished.trajectory->rollout_logprobs[0], logprobs.at(static_cast<size_t>(id)), 2e-6);
      EXPECT_EQ(finished.trajectory->temperature, temperature);
      if (const auto entropy = entropies.find(temperature); entropy != entropies.end()) {
        EXPECT_NEAR(finished.trajectory->mean_entropy, entropy->second, 2e-6);
      }
    }
    EXPECT_EQ(seen.size(), 3U);
    for (const auto& [id, count] : seen) {
      const double p = std::exp(logprobs.at(static_cast<size_t>(id)));
      EXPECT_NEAR(count / 300.0, p, 5 * std::sqrt(p * (1 - p) / 300));
    }
  }
  for (const Finished& finished : answer(scripted(), {'s'}, greedy(1), 4)) {  // SAMP-2
    EXPECT_EQ(finished.trajectory->response_ids[0], 0);
    EXPECT_NEAR(finished.trajectory->rollout_logprobs[0], -0.407606, 2e-6);
  }
}

// ENG-1: prompts that end on or beside a block's border, again and again through one cache.
class BorderTest : public testing::TestWithParam<bool> {};

TEST_P(BorderTest, PromptsOnBlockBordersAnswerAlike) {
  const Model model = load(fs::path(TANDEM_TEST_DATA) / "models" / "qwen3");
  SamplingParams params = greedy(8);
  params.ignore_eos = true;
  for (const int64_t length : {16, 32, 31, 33}) {
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>((i * i + 3) % 96));
    const TrajectoryPtr alone = answer(model, ids, params)[0].trajectory;

    GeneratorOptions options = options_for(model);
    options.num_blocks = 13;
    options.prefix_caching = GetParam();
    std::vector<TrajectoryPtr> finished;
    Generator generator(*model.decoder, options, nullptr,
                        [&](TrajectoryPtr t, const std::string&) { finished.push_back(std::move(t)); });
    const auto add = [&](const std::vector<TokenId>& tokens, uint32_t num_samples) {
      generator.add(
          std::make_shared<GenerationRequest>(GenerationRequest{prompt_of(tokens), params, num_samples, 0, {}}));
    };
    add(ids, 1), generator.run();
    add(ids, 1), generator.run();
    add(ids, 1), add(ids, 1), generator.run();
    add(ids, 2), generator.run();
    ASSERT_EQ(finished.size(), 6U);
    for (const TrajectoryPtr& t : finished) {
      EXPECT_EQ(t->response_ids, alone->response_ids);
      EXPECT_EQ(t->rollout_logprobs, alone->rollout_logprobs);
    }
    const int64_t cached = generator.stats().num_cached_tokens;
    // Each of the four requests after the first finds its whole blocks, the last token never among them.
    EXPECT_EQ(cached, GetParam() ? 4 * ((length - 1) / 16 * 16) : 0);
    finished.clear();
    for (TokenId other = 0; other < 4; ++other) add(std::vector<TokenId>(100, other), 1);
    generator.run();
    ASSERT_EQ(finished.size(), 4U);
    add(ids, 1), generator.run();
    EXPECT_EQ(finished.back()->response_ids, alone->response_ids);
    EXPECT_EQ(finished.back()->rollout_logprobs, alone->rollout_logprobs);
  }
}

INSTANTIATE_TEST_SUITE_P(PrefixCaching, BorderTest, testing::Bool());

TEST(Generator, PlansBlocksWithinTheBudget) {
  const ModelConfig config = load_model_config(fs::path(TANDEM_TEST_DATA) / "models" / "qwen3");
  // 2 layers x keys and values x 2 heads x 16 x 16 tokens x 4 bytes = 8 KiB a block.
  EXPECT_EQ(plan_kv_blocks(config, 1 << 20, 100, 1000), 128);
  EXPECT_EQ(plan_kv_blocks(config, 1 << 20, 100, 50), 50);
  EXPECT_EQ(plan_kv_blocks(config, 1 << 20, 100, 0), 7) << "never less than one sequence";
  expect_names(error_of<ConfigError>([&] { plan_kv_blocks(config, 1 << 13, 100, 10); }), {"kv_cache_memory_mb", "100"});
}

}  // namespace
}  // namespace tandem
