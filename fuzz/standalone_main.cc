// Runs a fuzz target without libFuzzer: <program> SECONDS FOLDER [SEED] mutates the files of FOLDER until the time is
// up. A failing run is repeated by the seed it printed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Random = std::mt19937_64;

constexpr size_t kLongest = 4096;

size_t below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// Text that parsers treat specially.
const std::vector<std::string> kTokens = {
    "{",  "}",  "[",  "]",  "\"", ",",    ":", "\\u0000", "\n",   "-1", "1e99",       "null",
    "{{", "}}", "{%", "%}", "${", "\xff", "0", ".",       "true", "..", "4294967296", "18446744073709551615",
    "- ", "#",  "&a", "*a"};

void mutate(std::string& input, const std::vector<std::string>& seeds, Random& random) {
  const size_t at = below(random, input.size() + 1);
  const size_t length = below(random, std::min<size_t>(input.size() - at, 32) + 1);
  switch (below(random, 7)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(random, 8)));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random());
      break;
    case 2:
      input.erase(at, length);
      break;
    case 3:
      input.insert(at, input.substr(below(random, input.size() + 1), length));
      break;
    case 4:
      input.insert(at, kTokens[below(random, kTokens.size())]);
      break;
    case 5:
      if (at < input.size() && input[at] >= '0' && input[at] <= '9')
        input[at] = static_cast<char>('0' + below(random, 10));
      break;
    default: {
      const auto& other = seeds[below(random, seeds.size())];
      input.replace(at, length, other.substr(below(random, other.size() + 1), below(random, 64)));
    }
  }
  if (input.size() > kLongest) input.resize(kLongest);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SECONDS FOLDER [SEED]\n", argv[0]);
    return 2;
  }
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::random_device{}();
  std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // the same order every time
  std::vector<std::string> seeds{""};
  for (const auto& path : paths) seeds.push_back(tandem::read_file(path));

  Random random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::strtod(argv[1], nullptr));
  uint64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    std::string input = seeds[below(random, seeds.size())];
    for (size_t i = below(random, 8); i > 0; --i) mutate(input, seeds, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::fprintf(stderr, "%llu inputs\n", static_cast<unsigned long long>(runs));
  return 0;
}
