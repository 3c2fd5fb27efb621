#include "dashboard/samples_index.h"

#include <gtest/gtest.h>

#include <fstream>

#include "observe/samples_log.h"
#include "observe/temp_folder.h"

namespace tandem {
namespace {

SampleRecord record(int64_t step, std::string prompt, double reward, std::string stop) {
  SampleRecord out;
  out.step = step;
  out.data_source = "gsm8k";
  out.prompt = std::move(prompt);
  out.response = "it is \"4\", {so}\n";
  out.score = reward + 1;
  out.reward = reward;
  out.advantage = -reward;
  out.stop_reason = std::move(stop);
  out.response_ids = {1, 2};
  out.logprobs = {-0.5F, -1};
  return out;
}

TEST(SampleHead, IsWhatTheLogWrites) {
  const auto head = parse_sample_head(to_json(record(7, "2+2?", 0.25, "stop")));
  ASSERT_TRUE(head);
  EXPECT_EQ(head->row.step, 7);
  EXPECT_EQ(head->row.score, 1.25F);
  EXPECT_EQ(head->row.reward, 0.25F);
  EXPECT_EQ(head->row.advantage, -0.25F);
  EXPECT_EQ(head->stop_reason, "stop");
  EXPECT_EQ(head->data_source, "gsm8k");
  EXPECT_EQ(head->row.prompt, parse_sample_head(to_json(record(8, "2+2?", 0, "length")))->row.prompt);
  EXPECT_NE(head->row.prompt, parse_sample_head(to_json(record(7, "2+3?", 0.25, "stop")))->row.prompt);
  for (const char* broken : {"", "{}", "[1]", "{\"step\"", "{\"reward\":1}"})
    EXPECT_FALSE(parse_sample_head(broken)) << broken;
}

TEST(SamplesIndex, FiltersAndOrders) {
  const TempFolder folder;
  const auto path = folder / "samples.jsonl";
  {
    SamplesLog log(path);
    log.append(record(1, "a", 0, "stop"));
    log.append(record(1, "b", 1, "length"));
    log.append(record(2, "a", 0.5, "stop"));
    log.append(record(3, "a", 1, "stop"));
  }
  std::ofstream(path, std::ios::app) << "{\"step\":4,\"da";  // being written
  SamplesIndex index(path);
  EXPECT_TRUE(index.read(1 << 20));
  ASSERT_EQ(index.size(), 4u);
  using Found = std::vector<size_t>;
  EXPECT_EQ(index.find({}), (Found{3, 2, 0, 1}));
  EXPECT_EQ(index.find({.order = SampleOrder::kOldest}), (Found{0, 1, 2, 3}));
  EXPECT_EQ(index.find({.order = SampleOrder::kBest}), (Found{3, 1, 2, 0}));
  EXPECT_EQ(index.find({.order = SampleOrder::kWorst}), (Found{0, 2, 3, 1}));
  EXPECT_EQ(index.find({.first_step = 2, .last_step = 2}), Found{2});
  EXPECT_EQ(index.find({.least_reward = 0.5}), (Found{3, 2, 1}));
  EXPECT_EQ(index.find({.most_reward = 0.25}), Found{0});
  EXPECT_EQ(index.find({.stop_reason = "length"}), Found{1});
  EXPECT_EQ(index.find({.stop_reason = "absent"}), Found{});
  EXPECT_EQ(index.find({.prompt = index.row(0).prompt, .order = SampleOrder::kOldest}), (Found{0, 2, 3}));
  EXPECT_EQ(index.line(2), to_json(record(2, "a", 0.5, "stop")));
}

TEST(SamplesIndex, ComesInPiecesAndAnewAfterACut) {
  const TempFolder folder;
  const auto path = folder / "samples.jsonl";
  const std::string text = to_json(record(1, std::string(1 << 20, 'x'), 0, "stop")) + "\n";
  for (int i = 0; i < 4; ++i) std::ofstream(path, std::ios::app) << text;
  SamplesIndex index(path);
  EXPECT_FALSE(index.read(1));
  const size_t some = index.size();
  EXPECT_LT(some, 4u);
  while (!index.read(1)) {
  }
  EXPECT_EQ(index.size(), 4u);
  std::filesystem::resize_file(path, text.size());
  index.read(1 << 30);
  EXPECT_EQ(index.size(), 1u);
}

}  // namespace
}  // namespace tandem
