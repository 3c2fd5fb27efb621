// The layouts of layout_case.h with processes as ranks, over Gloo. Each rank is this program again; it takes longer
// than threads do, so TANDEM_LAYOUTS=some|all asks for it (tests/e2e/layouts_test.sh).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/child_process.h"
#include "engine/layout_case.h"
#include "engine/team.h"
#include "parallel/communicator_gloo.h"

namespace tandem::layouts {
namespace {

constexpr Timeout kTimeout = std::chrono::seconds(60);
constexpr const char* kRank = "TANDEM_LAYOUT_RANK";  // "index of the case,rank,port"

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const bool qwen : {false, true})
    for (const Layout& layout : kLayouts) all.emplace_back(qwen, layout);
  return all;
}

std::shared_ptr<Team> team_of(const Rendezvous& place, int rank, const Layout& layout) {
  return std::make_shared<Team>(place.communicator(rank, layout.world(), "orders", kTimeout),
                                place.communicator(rank, layout.world(), "work", kTimeout), layout);
}

TEST(RankOfLayout, Follows) {
  const char* given = std::getenv(kRank);
  if (given == nullptr) GTEST_SKIP() << "started by ProcessLayoutTest only";
  int index = 0, rank = 0, port = 0;
  ASSERT_EQ(std::sscanf(given, "%d,%d,%d", &index, &rank, &port), 3);
  omp_set_num_threads(1);
  const auto [qwen, layout] = all_cases().at(static_cast<size_t>(index));
  const std::unique_ptr<Engine> engine = make_engine(qwen, std::make_shared<TrajectoryStore>());
  const Rendezvous place = Rendezvous::join("127.0.0.1", static_cast<uint16_t>(port), kTimeout);
  engine->join_team(team_of(place, rank, layout));
  engine->follow();
}

class ProcessLayoutTest : public testing::TestWithParam<size_t> {};

TEST_P(ProcessLayoutTest, TrainsAndGeneratesAsOneRank) {
  const char* wanted = std::getenv("TANDEM_LAYOUTS");
  const Case which = all_cases()[GetParam()];
  if (wanted == nullptr || (std::string(wanted) != "all" && !in_short_list(which)))
    GTEST_SKIP() << "set TANDEM_LAYOUTS=all";
  omp_set_num_threads(1);
  const auto [qwen, layout] = which;
  const Rendezvous place = Rendezvous::serve("127.0.0.1", 0, kTimeout);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<ChildProcess> others;
  for (int rank = 1; rank < layout.world(); ++rank)
    others.emplace_back(std::vector<std::string>{"env",
                                                 fmt::format("{}={},{},{}", kRank, GetParam(), rank, place.port()),
                                                 program, "--gtest_filter=RankOfLayout.Follows", "--gtest_brief=1"});
  {
    const auto store = std::make_shared<TrajectoryStore>();
    const std::unique_ptr<Engine> leader = make_engine(qwen, store);
    leader->join_team(team_of(place, 0, layout));
    expect_as_one_rank(train(*leader, *store), qwen);
  }
  for (ChildProcess& other : others) EXPECT_EQ(other.stop(kTimeout), "exit code 0");
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProcessLayoutTest, testing::Range(size_t{0}, 2 * std::size(kLayouts)),
                         [](const auto& info) { return case_id(all_cases()[info.param]); });

}  // namespace
}  // namespace tandem::layouts
