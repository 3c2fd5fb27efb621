#include "app/bench_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "engine/model_parts.h"
#include "model/decoder_weights.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = 8 << 20;
constexpr double kMostCached = 0.02;  // of a file that was dropped

template <class Fn>
double seconds_taken(Fn run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw IoError("cannot open " + path.string());
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(descriptor_); }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

double cached_share(const fs::path& path) {
  const MappedFile file(path);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((file.bytes().size() + page - 1) / page);
  if (resident.empty()) return 0;
  ::mincore(const_cast<std::byte*>(file.bytes().data()), file.bytes().size(), resident.data());
  const auto count = std::ranges::count_if(resident, [](unsigned char flags) { return (flags & 1) != 0; });
  return static_cast<double>(count) / static_cast<double>(resident.size());
}

void drop(const std::vector<fs::path>& files) {
  for (const fs::path& path : files) {
    ::posix_fadvise(OpenFile(path).get(), 0, 0, POSIX_FADV_DONTNEED);
    if (cached_share(path) > kMostCached)
      throw IoError(path.string() + " stays in the page cache: another program holds it, or it was not yet written");
  }
}

void read_through(const std::vector<fs::path>& files) {
  std::vector<std::byte> buffer(kReadBytes);
  for (const fs::path& path : files) {
    const OpenFile file(path);
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    while (::read(file.get(), buffer.data(), buffer.size()) > 0) {
    }
  }
}

// Parts of fully sharded ranks; their memory is made anew, as at a run's start.
void load_by_ranks(const fs::path& model, const ModelConfig& config, int ranks) {
  const Layout layout{.dp_shard = ranks};
  const ModelParts parts(config, layout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const DecoderWeights part = parts.empty_part(rank);
      parts.read(rank, ShardedFolder(model, weight_files(model)), "", part);
    });
  for (std::thread& thread : threads) thread.join();
}

void load_whole(const fs::path& model, const ModelConfig& config) {
  DecoderWeights weights = empty_weights(config);
  load_weights(WeightFolder(model), config, weights);
}

}  // namespace

int bench_load(const fs::path& model, int ranks, int repeats) {
  const ModelConfig config = load_model_config(model);
  const std::vector<fs::path> files = weight_files(model);
  double bytes = 0;
  for (const fs::path& path : files) bytes += static_cast<double>(fs::file_size(path));
  const auto load = [&] { ranks > 1 ? load_by_ranks(model, config, ranks) : load_whole(model, config); };
  std::vector<double> shares;
  for (int i = 0; i < repeats; ++i) {
    drop(files);
    const double plain = bytes / 1e9 / seconds_taken([&] { read_through(files); });
    drop(files);
    const double cold = bytes / 1e9 / seconds_taken(load), warm = bytes / 1e9 / seconds_taken(load);
    shares.push_back(cold / plain);
    fmt::print(R"({{"name": "load", "ranks": {}, "gigabytes": {:.3f}, "sequential_gb_per_second": {:.3f}, )"
               R"("cold_gb_per_second": {:.3f}, "warm_gb_per_second": {:.3f}, "share": {:.3f}}})"
               "\n",
               ranks, bytes / 1e9, plain, cold, warm, shares.back());
    std::fflush(stdout);
  }
  std::ranges::sort(shares);
  fmt::print(R"({{"name": "loads", "median_share": {:.3f}}})"
             "\n",
             shares[shares.size() / 2]);
  return 0;
}

}  // namespace tandem
