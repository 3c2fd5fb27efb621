#include "app/bench_ranks.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "app/one_rank.h"
#include "kernels/side_work.h"
#include "model/placements.h"
#include "parallel/collectives.h"
#include "parallel/reshard.h"
#include "train/fsdp.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

template <class... Args>
void print_on_first(const Communicator& world, fmt::format_string<Args...> format, Args&&... args) {
  if (world.rank() != 0) return;
  fmt::print(format, std::forward<Args>(args)...);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

// Numbers on the device that say whose they are.
class Values {
 public:
  Values(int64_t count, at::Device device) : tensor_(at::empty({count}, at::device(device).dtype(at::kInt))) {}
  template <class Fn>
  Values(int64_t count, at::Device device, Fn value) : Values(count, device) {
    const at::Tensor host = at::empty({count}, at::kInt);
    for (int64_t i = 0; i < count; ++i) host.data_ptr<int32_t>()[i] = value(i);
    tensor_.copy_(host);
  }
  std::span<std::byte> bytes(int64_t first, int64_t count) const {
    return bytes_of(tensor_.data_ptr<int32_t>() + first, static_cast<size_t>(count));
  }
  template <class Fn>
  bool equal(Fn value) const {
    const at::Tensor host = tensor_.cpu();
    for (int64_t i = 0; i < host.numel(); ++i)
      if (host.data_ptr<int32_t>()[i] != value(i)) return false;
    return true;
  }

 private:
  at::Tensor tensor_;
};

int32_t number(int64_t rank, int64_t i) { return static_cast<int32_t>(rank * 1'000'003 + i * 7); }

// Part r is of r + 1 thousand numbers and a few: of odd sizes, so that borders are not those of any alignment.
int64_t length_of(int64_t rank) { return 1000 * (rank + 1) + 3 * rank; }

bool gathers(Communicator& world, at::Device device) {
  std::vector<int64_t> starts{0};
  for (int r = 0; r < world.size(); ++r) starts.push_back(starts.back() + length_of(r));
  const auto owner = [&](int64_t i) { return std::ranges::upper_bound(starts, i) - starts.begin() - 1; };
  const auto wanted = [&](int64_t i) { return number(owner(i), i); };
  Values values(starts.back(), device, [&](int64_t i) { return owner(i) == world.rank() ? wanted(i) : -1; });
  std::vector<std::span<std::byte>> parts;
  for (int r = 0; r < world.size(); ++r) parts.push_back(values.bytes(starts[r], length_of(r)));
  all_gather(world, "check of all_gather", parts);
  return values.equal(wanted);
}

bool exchanges_all(Communicator& world, at::Device device) {
  const int64_t n = 777, ranks = world.size();
  const Values in(n * ranks, device, [&](int64_t i) { return number(world.rank() * ranks + i / n, i % n); });
  Values out(n * ranks, device, [](int64_t) { return -1; });
  std::vector<std::span<const std::byte>> from;
  std::vector<std::span<std::byte>> to;
  for (int64_t r = 0; r < ranks; ++r) from.push_back(in.bytes(r * n, n)), to.push_back(out.bytes(r * n, n));
  all_to_all(world, "check of all_to_all", from, to);
  return out.equal([&](int64_t i) { return number(i / n * ranks + world.rank(), i % n); });
}

bool broadcasts(Communicator& world, at::Device device) {
  bool right = true;
  for (int root = 0; root < world.size(); ++root) {
    Values values(5001, device, [&](int64_t i) { return world.rank() == root ? number(root, i) : -1; });
    broadcast(world, "check of broadcast", values.bytes(0, 5001), root);
    right &= values.equal([&](int64_t i) { return number(root, i); });
  }
  return right;
}

// Parts that lie with the hosts beside parts on the devices, in a group of its own.
bool mixes(Communicator& world, at::Device device) {
  const auto group = world.duplicate();
  const int next = (world.rank() + 1) % world.size(), before = (world.rank() + world.size() - 1) % world.size();
  const Values out(100, device, [&](int64_t i) { return number(world.rank(), i); });
  Values in(100, device, [](int64_t) { return -1; });
  int64_t mine = world.rank(), theirs = -1;
  const SendPart sends[] = {{next, bytes_of(&mine, 1)}, {next, out.bytes(0, 60)}, {next, out.bytes(60, 40)}};
  const ReceivePart receives[] = {
      {before, bytes_of(&theirs, 1)}, {before, in.bytes(0, 60)}, {before, in.bytes(60, 40)}};
  group->exchange("check of host and device", sends, receives);
  return theirs == before && in.equal([&](int64_t i) { return number(before, i); });
}

// Element numbers through a plan, columns among them.
bool reshards(Communicator& world, at::Device device) {
  const ParameterList list = placements(one_rank_model(true));
  const auto numbered = [&](const Layout& layout, int rank, bool filled) {
    std::vector<Values> memory;
    std::vector<std::vector<int32_t>> numbers(list.parameters.size());
    for (const Held& held : holdings(list, layout, rank)) {
      auto& all = numbers[held.parameter];
      const int64_t cols = list.parameters[held.parameter].tensors[held.tensor].cols;
      all.resize(std::max(all.size(), static_cast<size_t>(held.offset + held.box.elements())));
      for (int64_t r = 0; r < held.box.rows.size(); ++r)
        for (int64_t c = 0; c < held.box.cols.size(); ++c)
          all[static_cast<size_t>(held.offset + r * held.box.cols.size() + c)] = static_cast<int32_t>(
              1'000'000 * held.tensor + (held.box.rows.begin + r) * cols + held.box.cols.begin + c);
    }
    for (const auto& all : numbers)
      memory.emplace_back(static_cast<int64_t>(all.size()), device,
                          [&](int64_t i) { return filled ? all[static_cast<size_t>(i)] : -1; });
    return std::pair(std::move(memory), std::move(numbers));
  };
  bool right = true;
  const int n = world.size();
  for (const auto& [from, to] :
       {std::pair(Layout{.dp_shard = n}, Layout{.tp = n}), std::pair(Layout{.tp = n}, Layout{.dp_replicate = n})}) {
    const ReshardPlan plan = plan_reshard(list, from, to);
    const int role = plan.roles[static_cast<size_t>(world.rank())];
    const auto old = numbered(from, world.rank(), true), now = numbered(to, role, false);
    at::Tensor room;
    reshard(world, plan,
            {sizeof(int32_t),
             [&](size_t p) { return old.first[p].bytes(0, 0).data(); },
             [&](size_t p) { return now.first[p].bytes(0, 0).data(); },
             {},
             [&](size_t bytes) {
               room = at::empty({static_cast<int64_t>(bytes)}, at::device(device).dtype(at::kByte));
               return static_cast<std::byte*>(room.data_ptr());
             }});
    for (size_t p = 0; p < list.parameters.size(); ++p)
      right &= now.first[p].equal([&](int64_t i) { return now.second[p][static_cast<size_t>(i)]; });
  }
  return right;
}

bool all_say(Communicator& world, bool right) {
  const auto all = all_gather_values(world, "verdict", static_cast<char>(right));
  return std::ranges::all_of(all, [](char one) { return one != 0; });
}

}  // namespace

bool check_ranks(Communicator& world, at::Device device) {
  bool whole = true;
  const auto report = [&](const std::string& name, bool right) {
    right = all_say(world, right);
    whole &= right;
    print_on_first(world, R"({{"name": "{}", "ranks": {}, "right": {}}})", name, world.size(), right);
  };
  report("all_gather", gathers(world, device));
  report("all_to_all", exchanges_all(world, device));
  report("broadcast", broadcasts(world, device));
  report("host and device", mixes(world, device));
  report("reshard", reshards(world, device));
  std::vector<Layout> layouts{{.dp_shard = world.size()}, {.dp_replicate = world.size()}};
  if (world.size() % 2 == 0 && world.size() > 2) layouts.push_back({.dp_replicate = 2, .dp_shard = world.size() / 2});
  for (const Layout& layout : layouts)
    for (const bool qwen : {true, false})
      report(fmt::format("{} of a {} bitwise as one rank", layout_name(layout), qwen ? "qwen3" : "llama"),
             trains_as_one_rank(world, layout, one_rank_model(qwen), device));
  return whole;
}

double measure_all_gather(Communicator& world, at::Device device) {
  double best = 0;
  for (const int64_t mb : {1, 16, 128, 512}) {
    const int64_t each = mb << 20;
    const at::Tensor all = at::empty({each * world.size()}, at::device(device).dtype(at::kByte));
    std::vector<std::span<std::byte>> parts;
    for (int r = 0; r < world.size(); ++r)
      parts.emplace_back(static_cast<std::byte*>(all.data_ptr()) + r * each, static_cast<size_t>(each));
    double least = 1e9;
    for (int i = 0; i < 6; ++i) {
      barrier(world, "before a measurement");
      const auto begin = Clock::now();
      all_gather(world, "all_gather", parts);
      if (i > 0) least = std::min(least, seconds_since(begin));  // the first one connects
    }
    const double rate = static_cast<double>(each * (world.size() - 1)) / least / 1e9;
    best = std::max(best, rate);
    print_on_first(world, R"({{"name": "all_gather", "mb_a_rank": {}, "seconds": {:.6f}, "received_gb_s": {:.1f}}})",
                   mb, least, rate);
  }
  return best;
}

void measure_switch(Communicator& world, const std::filesystem::path& model, at::Device device, int64_t repeats) {
  const ModelConfig config = load_model_config(model);
  const int n = world.size();
  const Layout train{.dp_shard = n};
  const double link = measure_all_gather(world, device);
  const ParameterList list = placements(config);
  const auto report = [&](const std::string& to, double seconds, int64_t received, int64_t least, int64_t extra) {
    const double slowest = std::ranges::max(all_gather_values(world, "seconds", seconds));
    int64_t sum = 0, most = 0;
    for (const int64_t bytes : all_gather_values(world, "bytes", received)) sum += bytes, most = std::max(most, bytes);
    const double rate = static_cast<double>(most) / slowest / 1e9;
    print_on_first(
        world,
        R"({{"name": "reshard", "from": "{}", "to": "{}", "seconds": {:.4f}, "bytes": {}, "least_bytes": {}, )"
        R"("received_gb_s": {:.1f}, "share_of_all_gather": {:.3f}, "extra_bytes": {}}})",
        layout_name(train), to, slowest, sum, least, rate, rate / link, extra);
  };
  {
    DecoderWeights weights = random_weights(config, device);
    if (device.is_cpu()) weights = converted(weights, at::device(device).dtype(at::kFloat));
    Decoder decoder(config, std::move(weights), 128);
    FullyShardedModel sharded(decoder, world, train);
    const at::Tensor like = decoder.weights().final_norm_E;
    const int64_t bytes = like.element_size();
    const int64_t least = plan_reshard(list, train, {.dp_replicate = n}).moved_elements() * bytes;
    for (int64_t i = 0; i < repeats; ++i) {
      sharded.enter_training();
      const int64_t before = sharded.traffic().bytes_received;
      kernels::synchronize(like);
      kernels::reset_peak_memory(like);
      barrier(world, "before a measurement");
      const auto begin = Clock::now();
      sharded.enter_rollout();
      kernels::synchronize(like);
      const double seconds = seconds_since(begin);
      const auto memory = kernels::device_memory(like);
      report("whole", seconds, sharded.traffic().bytes_received - before, least,
             memory.peak_allocated - memory.allocated);
    }
  }
  const Layout tensor{.tp = n};
  const ReshardPlan plan = plan_reshard(list, train, tensor);
  const auto memory_of = [&](const Layout& layout, int rank) {
    std::vector<int64_t> sizes(list.parameters.size());
    for (const Held& held : holdings(list, layout, rank)) sizes[held.parameter] += held.box.elements();
    std::vector<at::Tensor> memory;
    for (const int64_t size : sizes) memory.push_back(at::empty({size}, at::device(device).dtype(at::kBFloat16)));
    return memory;
  };
  const auto from = memory_of(train, world.rank()),
             to = memory_of(tensor, plan.roles[static_cast<size_t>(world.rank())]);
  at::Tensor room;
  for (int64_t i = 0; i < repeats; ++i) {
    barrier(world, "before a measurement");
    const auto begin = Clock::now();
    const ReshardResult moved =
        reshard(world, plan,
                {2,
                 [&](size_t p) { return static_cast<std::byte*>(from[p].data_ptr()); },
                 [&](size_t p) { return static_cast<std::byte*>(to[p].data_ptr()); },
                 {},
                 [&](size_t bytes) {
                   room = at::empty({static_cast<int64_t>(bytes)}, at::device(device).dtype(at::kByte));
                   return static_cast<std::byte*>(room.data_ptr());
                 }});
    kernels::synchronize(to[0]);
    report(layout_name(tensor), seconds_since(begin), moved.bytes_received, plan.moved_elements() * 2,
           moved.peak_staging_bytes);
  }
}

bool check_failure(Communicator& world, at::Device device, bool hangs) {
  const Values out(1 << 20, device, [](int64_t i) { return static_cast<int32_t>(i); });
  std::vector<Values> in;
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (int r = 0; r < world.size(); ++r) {
    in.emplace_back(1 << 20, device);
    sends.push_back({r, out.bytes(0, 1 << 20)}), receives.push_back({r, in.back().bytes(0, 1 << 20)});
  }
  world.exchange("exchange of all", sends, receives);
  const int last = world.size() - 1;
  if (world.rank() == last) {
    if (!hangs) std::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  const auto begin = Clock::now();
  std::string error;
  try {
    world.exchange("exchange without the last", sends, receives);
  } catch (const CommunicationError& failure) {
    error = failure.what();
  }
  const bool named = error.find(fmt::format("rank {} ", last)) != std::string::npos &&
                     error.find("exchange without the last") != std::string::npos;
  print_on_first(world, R"({{"name": "a {} rank", "seconds": {:.3f}, "right": {}, "error": "{}"}})",
                 hangs ? "hanging" : "dead", seconds_since(begin), named, error);
  return named;
}

}  // namespace tandem
