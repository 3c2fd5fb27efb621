#include "serve/engine_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "checkpoint/scratch_folder.h"
#include "model/decoder_weights.h"
#include "support/bigram.h"

namespace tandem {
namespace {

using std::chrono::seconds;

// Letters go on for ever; 'p' ends one time in four.
struct Model {
  std::unique_ptr<ScratchFolder> folder = std::make_unique<ScratchFolder>();
  std::unique_ptr<Tokenizer> tokenizer;

  explicit Model(float ending = std::log(0.25F)) {
    BigramTable table;
    table.rows['a'] = {{'b', 0.F}, {'a', 0.5F}};
    table.rows['b'] = {{'a', 0.F}, {'b', 1.F}};
    table.rows['p'] = {{kBigramImEnd, ending}, {'p', std::log(0.75F)}};
    write_bigram_model(folder->path(), table);
    tokenizer = std::make_unique<Tokenizer>(Tokenizer::from_folder(folder->path()));
  }
  std::unique_ptr<Decoder> decoder() const {
    ModelConfig config = load_model_config(folder->path());
    DecoderWeights weights = empty_weights(config);
    load_weights(WeightFolder(folder->path()), config, weights);
    return std::make_unique<Decoder>(std::move(config), std::move(weights), 256);
  }
};

EngineLoopOptions options_of(const Model& model) {
  EngineLoopOptions options;
  options.generator.num_blocks = 64;
  options.generator.max_model_len = 200;
  options.generator.num_drawable = static_cast<int64_t>(model.tokenizer->vocab_size());
  options.generator.prefix_caching = false;
  options.max_samples = 32;
  return options;
}

GenerationJob job_of(std::vector<TokenId> prompt, int64_t max_tokens, uint64_t seed = 1, uint32_t n = 1) {
  GenerationJob job;
  job.prompt_ids = std::move(prompt);
  job.params.max_tokens = max_tokens;
  job.params.eos_ids = {kBigramImEnd};
  job.params.seed = seed;
  job.num_samples = n;
  return job;
}

struct Reply {
  std::string text;
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::optional<StopReason> stop_reason;
  bool operator==(const Reply&) const = default;
};

std::vector<Reply> read_all(Generation& generation) {
  std::vector<Reply> replies(generation.job().num_samples);
  const auto until = ServeClock::now() + seconds(20);
  while (!generation.finished() && ServeClock::now() < until)
    for (const SampleUpdate& update : generation.take(until)) {
      Reply& reply = replies.at(update.sample);
      reply.text += update.text;
      for (const DrawnToken& token : update.tokens) {
        reply.ids.push_back(token.id);
        reply.logprobs.push_back(token.logprob);
      }
      if (update.stop_reason) reply.stop_reason = update.stop_reason;
    }
  EXPECT_TRUE(generation.finished());
  return replies;
}

// The loop on its thread, while it lives.
class Running {
 public:
  explicit Running(EngineLoop& loop) : loop_(loop), thread_([&] { loop_.run(); }) {}
  ~Running() {
    loop_.stop();
    thread_.join();
  }

 private:
  EngineLoop& loop_;
  std::thread thread_;
};

template <class F>
void eventually(const F& holds) {
  const auto until = ServeClock::now() + seconds(20);
  while (!holds() && ServeClock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(holds());
}

// What the generator gives alone and at once.
std::vector<Reply> offline(const Model& model, const GenerationJob& job) {
  std::vector<Reply> replies(job.num_samples);
  const auto decoder = model.decoder();
  Generator generator(*decoder, options_of(model).generator, model.tokenizer.get(),
                      [&](const TrajectoryPtr& t, const std::string& text) {
                        replies.at(t->sample_index) = {text, t->response_ids, t->rollout_logprobs, t->stop_reason};
                      });
  auto prompt = std::make_shared<Prompt>();
  prompt->token_ids = job.prompt_ids;
  auto request = std::make_shared<GenerationRequest>(GenerationRequest{prompt, job.params, job.num_samples, 0, {}});
  request->on_text = [](uint32_t, std::string_view) {};
  generator.add(request);
  generator.run();
  return replies;
}

TEST(EngineLoop, GivesTheBitsOfTheGeneratorWhateverElseRuns) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  const Running running(loop);
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 8; ++i)
    jobs.push_back(job_of({'p', 'a', static_cast<TokenId>('a' + i % 2)}, 20 + i, i, 1 + i % 3));
  jobs[3].streamed = true;
  std::vector<GenerationPtr> generations;
  for (const GenerationJob& job : jobs) generations.push_back(loop.submit({job})[0]);
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(read_all(*generations[i]), offline(model, jobs[i])) << i;
  eventually([&] { return loop.counts().free_blocks == loop.counts().blocks; });
}

TEST(EngineLoop, ACancelledRequestFreesItsBlocks) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  const Running running(loop);
  GenerationJob job = job_of({'a'}, 190, 1, 4);
  job.streamed = true;
  const GenerationPtr gone = loop.submit({job})[0];
  ASSERT_FALSE(gone->take(ServeClock::now() + seconds(20)).empty());
  const GenerationPtr other = loop.submit({job_of({'a'}, 190, 2)})[0];
  loop.cancel(gone);
  eventually([&] { return loop.counts().cancelled == 1; });
  EXPECT_EQ(read_all(*other), offline(model, other->job()));
  eventually([&] { return loop.counts().free_blocks == loop.counts().blocks; });
  EXPECT_EQ(loop.counts().running, 0);
}

TEST(EngineLoop, OneThatWaitsIsCancelledToo) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  const GenerationPtr waiting = loop.submit({job_of({'a'}, 5)})[0];  // nothing runs yet
  loop.cancel(waiting);
  const Running running(loop);
  eventually([&] { return loop.counts().cancelled == 1; });
  EXPECT_EQ(loop.submit(std::vector(32, job_of({'a'}, 1))).size(), 32U) << "its place is free";
}

TEST(EngineLoop, RefusesWhatIsTooMuch) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  loop.submit({job_of({'a'}, 5, 1, 30)});
  EXPECT_THROW(loop.submit({job_of({'a'}, 5, 1, 3)}), Overloaded);
  EXPECT_NO_THROW(loop.submit({job_of({'a'}, 5, 1, 2)}));
  EXPECT_THROW(loop.submit({job_of({'a'}, 5, 1, 33)}), DataError) << "never possible";
  EXPECT_THROW(loop.submit({job_of(std::vector<TokenId>(200, 'a'), 5)}), DataError);
  EXPECT_THROW(loop.submit({job_of({}, 5)}), DataError);
}

// Two at once, two more may wait while nothing is known; then as many as will begin in time.
TEST(EngineLoop, RefusesWhatWouldWaitTooLong) {
  const Model model;
  EngineLoopOptions options = options_of(model);
  options.generator.scheduler.max_num_seqs = 2;
  options.max_wait_seconds = 1e-9;
  EngineLoop loop(model.decoder(), options, *model.tokenizer);
  std::vector<GenerationPtr> generations;
  for (int i = 0; i < 4; ++i) generations.push_back(loop.submit({job_of({'a'}, 5)})[0]);
  EXPECT_THROW(loop.submit({job_of({'a'}, 5)}), Overloaded);
  const Running running(loop);
  for (const GenerationPtr& generation : generations) read_all(*generation);
  GenerationJob job = job_of({'a'}, 190, 1, 2);
  job.streamed = true;
  bool refused = false;
  for (int i = 0; i < 50 && !refused; ++i) {  // it may have ended before the next one is asked for
    eventually([&] { return loop.counts().running == 0; });
    const GenerationPtr busy = loop.submit({job})[0];
    ASSERT_FALSE(busy->take(ServeClock::now() + seconds(20)).empty());
    try {
      loop.submit({job_of({'a'}, 5)});
    } catch (const Overloaded& error) {
      refused = error.retry_after_s() == 1;
    }
  }
  EXPECT_TRUE(refused) << "no reply begins within a nanosecond";
}

// Every id would end the reply, which min_tokens bars: that request fails, its neighbour does not.
TEST(EngineLoop, AFailureIsItsRequestsAlone) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  GenerationJob bad = job_of({'a'}, 5);
  bad.params.min_tokens = 2;
  bad.params.stop_token_ids.resize(model.tokenizer->vocab_size());
  std::iota(bad.params.stop_token_ids.begin(), bad.params.stop_token_ids.end(), 0);
  const auto generations = loop.submit({bad, job_of({'a'}, 50, 3)});
  const Running running(loop);
  EXPECT_THROW(read_all(*generations[0]), DataError);
  EXPECT_EQ(read_all(*generations[1]), offline(model, generations[1]->job()));
}

// They are the model's fault, not the request's, which server.cc tells apart.
TEST(EngineLoop, LogitsThatAreNotFiniteAreToldApart) {
  const Model broken(std::numeric_limits<float>::quiet_NaN());
  EngineLoop loop(broken.decoder(), options_of(broken), *broken.tokenizer);
  const GenerationPtr generation = loop.submit({job_of({'p'}, 5)})[0];
  const Running running(loop);
  EXPECT_THROW(read_all(*generation), NonFiniteLogits);
  eventually([&] { return loop.counts().free_blocks == loop.counts().blocks; });
}

// New weights end every 'p' at once; what began before is finished by the old ones.
TEST(EngineLoop, WeightsChangeBetweenRequests) {
  const Model model, ending(100.F);
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  GenerationJob job = job_of({'a'}, 150);
  job.streamed = true;
  const Running running(loop);
  const GenerationPtr before = loop.submit({job})[0];
  ASSERT_FALSE(before->take(ServeClock::now() + seconds(20)).empty());
  auto swapped = loop.swap_weights(ending.decoder(), std::nullopt);
  const GenerationPtr after = loop.submit({job_of({'p'}, 50)})[0];
  EXPECT_EQ(read_all(*after)[0].ids, std::vector<TokenId>{kBigramImEnd});
  EXPECT_EQ(swapped.get(), 1U);
  EXPECT_EQ(after->weights_version(), 1U);
  EXPECT_EQ(before->weights_version(), 0U);
  EXPECT_TRUE(before->finished() || !before->take(ServeClock::now() + seconds(20)).empty());
  EXPECT_EQ(loop.swap_weights(model.decoder(), 7).get(), 7U);
}

TEST(EngineLoop, TopLogProbsAreTheLikeliest) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  const Running running(loop);
  GenerationJob job = job_of({'a'}, 1);
  job.params.top_logprobs = 2;
  const GenerationPtr generation = loop.submit({job})[0];
  const auto updates = generation->take(ServeClock::now() + seconds(20));
  const DrawnToken& token = updates.at(0).tokens.at(0);
  ASSERT_EQ(token.top.size(), 2U);
  EXPECT_EQ(token.top[0].id, 'a');
  EXPECT_EQ(token.top[1].id, 'b');
  EXPECT_NEAR(token.top[0].logprob, 0.5 - std::log(1 + std::exp(0.5)), 1e-6);
  EXPECT_NEAR(token.top[1].logprob, -std::log(1 + std::exp(0.5)), 1e-6);
  EXPECT_EQ(token.logprob, token.top[token.id == 'a' ? 0 : 1].logprob);
}

TEST(EngineLoop, StoppingFailsWhatIsLeft) {
  const Model model;
  EngineLoop loop(model.decoder(), options_of(model), *model.tokenizer);
  GenerationPtr left;
  {
    const Running running(loop);
    GenerationJob job = job_of({'a'}, 190, 1, 8);
    left = loop.submit({job})[0];
  }
  EXPECT_THROW(
      {
        const auto updates = left->take(ServeClock::now() + seconds(20));
        if (left->finished() || !updates.empty()) throw ShuttingDown("it was done before");
      },
      ShuttingDown);
  EXPECT_THROW(loop.submit({job_of({'a'}, 1)}), ShuttingDown);
}

}  // namespace
}  // namespace tandem
