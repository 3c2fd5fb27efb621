#include "parallel/reshard.h"

#include <algorithm>
#include <map>

#include "parallel/assignment.h"

namespace tandem {
namespace {

Range overlap(const Range& a, const Range& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }
Box overlap(const Box& a, const Box& b) { return {overlap(a.rows, b.rows), overlap(a.cols, b.cols)}; }

// What is left of `whole` without `hole`, which lies in it: above, below, left, right.
void subtract(const Box& whole, const Box& hole, std::vector<Box>& out) {
  const auto add = [&](const Box& box) {
    if (!box.empty()) out.push_back(box);
  };
  add({{whole.rows.begin, hole.rows.begin}, whole.cols});
  add({{hole.rows.end, whole.rows.end}, whole.cols});
  add({hole.rows, {whole.cols.begin, hole.cols.begin}});
  add({hole.rows, {hole.cols.end, whole.cols.end}});
}

StridedBox within(const Held& held, const Box& part) {
  const int64_t stride = held.box.cols.size();
  return {held.offset + (part.rows.begin - held.box.rows.begin) * stride + part.cols.begin - held.box.cols.begin,
          stride, part.rows.size(), part.cols.size()};
}

using TensorKey = std::pair<size_t, size_t>;
using HeldIndex = std::map<TensorKey, std::vector<Held>>;

HeldIndex held_by_tensor(const std::vector<Held>& all) {
  HeldIndex index;
  for (const Held& held : all) index[{held.parameter, held.tensor}].push_back(held);
  return index;
}

const std::vector<Held>& pieces(const HeldIndex& index, const Held& of) {
  static const std::vector<Held> none;
  const auto found = index.find({of.parameter, of.tensor});
  return found == index.end() ? none : found->second;
}

int64_t overlap_elements(const HeldIndex& old, const std::vector<Held>& wanted) {
  int64_t total = 0;
  for (const Held& want : wanted)
    for (const Held& have : pieces(old, want)) {
      const Box common = overlap(have.box, want.box);
      if (!common.empty()) total += common.elements();
    }
  return total;
}

// Takes from `left` what `holder` has; `emit` is told of each common part.
template <class Emit>
void take(std::vector<Box>& left, const std::vector<Held>& holder, Emit emit) {
  for (const Held& have : holder) {
    std::vector<Box> rest;
    for (const Box& box : left) {
      const Box common = overlap(have.box, box);
      if (common.empty()) {
        rest.push_back(box);
        continue;
      }
      emit(have, common);
      subtract(box, common, rest);
    }
    left = std::move(rest);
  }
}

// Runs of rows in memory, in bytes.
struct Rows {
  size_t offset, pitch, width, height;

  Rows(const StridedBox& box, size_t element)
      : offset(static_cast<size_t>(box.offset) * element),
        pitch(static_cast<size_t>(box.stride) * element),
        width(static_cast<size_t>(box.cols) * element),
        height(static_cast<size_t>(box.rows)) {}
};

void pack(const Communicator& group, const std::byte* memory, const Rows& rows, std::byte* out) {
  group.copy_rows(out, rows.width, memory + rows.offset, rows.pitch, rows.width, rows.height);
}

void unpack(const Communicator& group, const std::byte* in, const Rows& rows, std::byte* memory) {
  group.copy_rows(memory + rows.offset, rows.pitch, in, rows.width, rows.width, rows.height);
}

void copy(const Communicator& group, const Move& move, const ReshardMemory& memory) {
  const Rows from(move.from, memory.element_bytes), to(move.to, memory.element_bytes);
  group.copy_rows(memory.to(move.parameter) + to.offset, to.pitch, memory.from(move.parameter) + from.offset,
                  from.pitch, from.width, from.height);
}

// Those of parameters [begin, end).
std::span<const Move> of_parameters(const std::vector<Move>& moves, size_t begin, size_t end) {
  const auto first = std::ranges::lower_bound(moves, begin, {}, &Move::parameter);
  return {first, std::ranges::lower_bound(moves, end, {}, &Move::parameter)};
}

// Where one exchange ends and the next begins: the same for every rank.
std::vector<size_t> exchange_ends(const ParameterList& list, const std::vector<RankMoves>& ranks) {
  const size_t count = list.parameters.size();
  std::vector<std::vector<int64_t>> staged(ranks.size(), std::vector<int64_t>(count));  // elements, by rank
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const Move& m : ranks[r].sends) staged[r][m.parameter] += m.from.contiguous() ? 0 : m.from.elements();
    for (const Move& m : ranks[r].receives) staged[r][m.parameter] += m.to.contiguous() ? 0 : m.to.elements();
  }
  std::vector<size_t> ends;
  std::vector<int64_t> room(ranks.size());
  const int64_t most = list.largest_block();
  for (size_t p = 0; p < count; ++p) {
    bool joins = p > 0 && list.parameters[p].block == list.parameters[p - 1].block;
    for (size_t r = 0; r < ranks.size(); ++r) joins = joins && room[r] + staged[r][p] <= most;
    if (!joins && p > 0) ends.push_back(p), std::ranges::fill(room, 0);
    for (size_t r = 0; r < ranks.size(); ++r) room[r] += staged[r][p];
  }
  if (count > 0) ends.push_back(count);
  return ends;
}

// Parts that do not lie in one piece go through a buffer.
class Staging {
 public:
  Staging(std::span<const Move> sends, std::span<const Move> receives, const ReshardMemory& memory) {
    const size_t element = memory.element_bytes;
    for (const Move& m : sends) size_ += m.from.contiguous() ? 0 : static_cast<size_t>(m.from.elements()) * element;
    for (const Move& m : receives) size_ += m.to.contiguous() ? 0 : static_cast<size_t>(m.to.elements()) * element;
    if (size_ == 0) return;
    if (!memory.staging) buffer_.resize(size_);
    all_ = {memory.staging ? memory.staging(size_) : buffer_.data(), size_};
  }
  std::span<std::byte> take(size_t bytes) {
    used_ += bytes;
    return all_.subspan(used_ - bytes, bytes);
  }
  int64_t bytes() const { return static_cast<int64_t>(size_); }

 private:
  size_t size_ = 0, used_ = 0;
  std::vector<std::byte> buffer_;
  std::span<std::byte> all_;
};

void move_parameters(Communicator& group, const RankMoves& mine, size_t begin, size_t end, const ReshardMemory& memory,
                     ReshardResult& result) {
  const size_t element = memory.element_bytes;
  const auto bytes = [&](const StridedBox& box) { return static_cast<size_t>(box.elements()) * element; };
  const auto sends = of_parameters(mine.sends, begin, end), receives = of_parameters(mine.receives, begin, end);
  Staging staging(sends, receives, memory);
  result.peak_staging_bytes = std::max(result.peak_staging_bytes, staging.bytes());
  std::vector<SendPart> out;
  std::vector<ReceivePart> in;
  for (const Move& move : sends) {
    const std::byte* from = memory.from(move.parameter);
    std::span<const std::byte> part(from + move.from.offset * element, bytes(move.from));
    if (!move.from.contiguous()) {
      const auto packed = staging.take(bytes(move.from));
      pack(group, from, {move.from, element}, packed.data());
      part = packed;
    }
    out.push_back({move.peer, part});
    result.bytes_sent += static_cast<int64_t>(part.size());
  }
  for (const Move& move : receives) {
    const std::span<std::byte> part =
        move.to.contiguous() ? std::span(memory.to(move.parameter) + move.to.offset * element, bytes(move.to))
                             : staging.take(bytes(move.to));
    in.push_back({move.peer, part});
    result.bytes_received += static_cast<int64_t>(part.size());
  }
  for (const Move& move : of_parameters(mine.copies, begin, end)) {
    copy(group, move, memory);
    result.bytes_copied += static_cast<int64_t>(bytes(move.from));
  }
  if (!out.empty() || !in.empty()) group.exchange("reshard", out, in);
  for (size_t i = 0; i < receives.size(); ++i)
    if (!receives[i].to.contiguous())
      unpack(group, in[i].bytes.data(), {receives[i].to, element}, memory.to(receives[i].parameter));
  for (size_t p = begin; memory.finished && p < end; ++p) memory.finished(p);
}

}  // namespace

std::vector<int> choose_roles(const ParameterList& list, const Layout& from, const Layout& to) {
  const int n = from.world();
  std::vector<std::vector<int64_t>> value(static_cast<size_t>(n), std::vector<int64_t>(static_cast<size_t>(n)));
  std::vector<std::vector<Held>> wanted;
  for (int g = 0; g < n; ++g) wanted.push_back(holdings(list, to, g));
  for (int r = 0; r < n; ++r) {
    const HeldIndex old = held_by_tensor(holdings(list, from, r));
    for (int g = 0; g < n; ++g)
      value[r][g] = 2 * overlap_elements(old, wanted[g]) + (r == g ? 1 : 0);  // among equals a rank keeps its number
  }
  return best_assignment(value);
}

ReshardPlan plan_reshard(const ParameterList& list, const Layout& from, const Layout& to) {
  check(from.world() == to.world(), "layouts of different numbers of ranks");
  ReshardPlan plan{from, to, choose_roles(list, from, to), {}, {}};
  const size_t n = static_cast<size_t>(from.world());
  std::vector<HeldIndex> old;
  for (size_t r = 0; r < n; ++r) old.push_back(held_by_tensor(holdings(list, from, static_cast<int>(r))));
  plan.ranks.resize(n);
  for (size_t r = 0; r < n; ++r) {
    for (const Held& want : holdings(list, to, plan.roles[r])) {
      std::vector<Box> left{want.box};
      // Its own memory first, then its neighbours': copies of the same part are asked in turn.
      for (size_t step = 0; step < n && !left.empty(); ++step) {
        const size_t holder = (r + step) % n;
        take(left, pieces(old[holder], want), [&](const Held& have, const Box& common) {
          const Move move{want.parameter, static_cast<int>(holder), within(have, common), within(want, common)};
          if (holder == r) {
            plan.ranks[r].copies.push_back(move);
          } else {
            plan.ranks[r].receives.push_back(move);
            plan.ranks[holder].sends.push_back({move.parameter, static_cast<int>(r), move.from, move.to});
          }
        });
      }
      check(left.empty(), "a part of the model is on no rank");
    }
  }
  const auto by_parameter = [](const Move& a, const Move& b) { return a.parameter < b.parameter; };
  for (RankMoves& moves : plan.ranks)
    for (auto* some : {&moves.copies, &moves.sends, &moves.receives})
      std::stable_sort(some->begin(), some->end(), by_parameter);
  plan.ends = exchange_ends(list, plan.ranks);
  return plan;
}

ReshardResult reshard(Communicator& group, const ReshardPlan& plan, const ReshardMemory& memory) {
  const RankMoves& mine = plan.ranks[static_cast<size_t>(group.rank())];
  ReshardResult result;
  size_t begin = 0;
  for (const size_t end : plan.ends) {
    move_parameters(group, mine, begin, end, memory, result);
    begin = end;
  }
  return result;
}

int64_t ReshardPlan::moved_elements() const {
  int64_t total = 0;
  for (const RankMoves& moves : ranks)
    for (const Move& move : moves.receives) total += move.to.elements();
  return total;
}

int64_t ReshardPlan::most_received() const {
  int64_t most = 0;
  for (const RankMoves& moves : ranks) {
    int64_t total = 0;
    for (const Move& move : moves.receives) total += move.to.elements();
    most = std::max(most, total);
  }
  return most;
}

double hybridflow_elements(int64_t elements, const Layout& from, const Layout& to) {
  const double share = 1.0 / (from.pp * from.tp * from.dp_shard), wanted = 1.0 / (to.pp * to.tp * to.dp_shard);
  return std::max(0.0, wanted - share) * static_cast<double>(elements) * from.world();
}

double naive_gather_elements(int64_t elements, const Layout& from) {
  const double share = 1.0 / (from.pp * from.tp * from.dp_shard);
  return (1.0 - share) * static_cast<double>(elements) * from.world();
}

}  // namespace tandem
