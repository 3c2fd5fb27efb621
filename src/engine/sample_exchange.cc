#include "engine/sample_exchange.h"

#include <algorithm>

#include "base/error.h"
#include "data/payload.h"
#include "engine/wire.h"
#include "parallel/collectives.h"

namespace tandem {
namespace {

template <class Stream, class Name>
void fields_of_name(Stream&& stream, Name& n) {
  stream(n.prompt, n.sample_index, n.owner, n.prompt_length, n.response_length, n.advantage);
}

// A part of what a rank sends: samples whose responses it owns; the first rank also says of others' what its roles
// know.
std::vector<TrainingSample> owned_samples(const std::vector<SampleName>& names, int rank, const DrawnHere& drawn) {
  std::vector<TrainingSample> mine;
  for (const SampleName& name : names) {
    if (name.owner != rank) continue;
    const auto found = drawn.find({name.prompt, name.sample_index});
    check(found != drawn.end(), "a rank no longer has a response that it drew");
    mine.push_back({.trajectory = found->second});
  }
  return mine;
}

std::vector<TrainingSample> known_to_first(const std::vector<SampleName>& names, std::vector<TrainingSample> whole) {
  static const auto nothing = std::make_shared<const Trajectory>(Trajectory{.prompt = std::make_shared<Prompt>()});
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].owner != 0) whole[i].trajectory = nothing;
  return whole;
}

// To and from every other rank, but that nobody sends to the first. parts[r]: rank r's.
std::vector<std::string> spread(Communicator& world, const std::string& mine) {
  const auto sizes = all_gather_values(world, "sizes of samples", static_cast<uint64_t>(mine.size()));
  std::vector<std::string> parts(sizes.size());
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    if (peer != 0) sends.push_back({peer, bytes_of(mine.data(), mine.size())});
    if (world.rank() == 0) continue;
    std::string& part = parts[static_cast<size_t>(peer)];
    part.resize(sizes[static_cast<size_t>(peer)]);
    receives.push_back({peer, bytes_of(part.data(), part.size())});
  }
  world.exchange("samples between ranks", sends, receives);
  return parts;
}

}  // namespace

std::string encode_names(const std::vector<SampleName>& names) {
  PayloadWriter out;
  out.put<uint64_t>(names.size());
  for (const SampleName& name : names) fields_of_name(out, name);
  return out.bytes();
}

std::vector<SampleName> decode_names(const std::string& bytes) {
  PayloadReader in(std::as_bytes(std::span(bytes)));
  std::vector<SampleName> names(in.get<uint64_t>());
  for (SampleName& name : names) fields_of_name(in, name);
  return names;
}

std::vector<TrainingSample> exchange_samples(Communicator& world, const std::vector<SampleName>& names,
                                             std::vector<TrainingSample> whole, const DrawnHere& drawn) {
  if (world.rank() == 0) {
    check(names.size() == whole.size(), "each sample has a name");
    spread(world, encode_samples(known_to_first(names, whole)));
    return whole;
  }
  const std::vector<TrainingSample> mine = owned_samples(names, world.rank(), drawn);
  const std::vector<std::string> parts = spread(world, encode_samples(mine));
  std::vector<TrainingSample> all = decode_samples(parts[0]);
  check(all.size() == names.size(), "the first rank tells of every sample");
  std::vector<std::vector<TrainingSample>> of_rank(parts.size());
  for (size_t rank = 1; rank < parts.size(); ++rank)
    of_rank[rank] = static_cast<int>(rank) == world.rank() ? mine : decode_samples(parts[rank]);
  std::vector<size_t> next(parts.size());
  std::map<uint64_t, PromptPtr> prompts;  // samples of a prompt share it, whoever drew them
  for (size_t i = 0; i < names.size(); ++i) {
    const auto owner = static_cast<size_t>(names[i].owner);
    if (owner != 0) all[i].trajectory = of_rank[owner].at(next[owner]++).trajectory;
    const PromptPtr& prompt = prompts.try_emplace(names[i].prompt, all[i].trajectory->prompt).first->second;
    if (prompt == all[i].trajectory->prompt) continue;
    auto copy = std::make_shared<Trajectory>(*all[i].trajectory);
    copy->prompt = prompt;
    all[i].trajectory = std::move(copy);
  }
  return all;
}

}  // namespace tandem
