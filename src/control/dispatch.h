// How a type crosses from the controller to the workers of a group and back: chosen by type, checked at compile time.
// split(value, n) gives n parts in order (parts may be empty); merge(parts) is its inverse. A type without a
// specialisation is sent whole to every worker, and its first result is returned.
#pragma once

#include <algorithm>
#include <vector>

#include "data/types.h"

namespace tandem {

template <class T>
struct Dispatch {
  static std::vector<T> split(const T& whole, size_t n) { return std::vector<T>(n, whole); }
  static T merge(std::vector<T> parts) { return std::move(parts.front()); }
};

// Cuts after whole groups, as evenly as they allow: the samples of a prompt share its keys, so they stay together.
// merge() counts the groups anew, since workers that draw number theirs from 0.
template <>
struct Dispatch<RolloutBatch> {
  static std::vector<RolloutBatch> split(const RolloutBatch& whole, size_t n) {
    std::vector<RolloutBatch> parts(n);
    size_t part = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      const bool new_group = i == 0 || whole[i].group != whole[i - 1].group;
      if (new_group) part = std::max(part, i * n / whole.size());
      parts[part].push_back(whole[i]);
    }
    return parts;
  }
  static RolloutBatch merge(const std::vector<RolloutBatch>& parts) {
    RolloutBatch whole;
    uint32_t group = 0;
    for (const RolloutBatch& part : parts) {
      for (size_t i = 0; i < part.size(); ++i) {
        if (i > 0 ? part[i].group != part[i - 1].group : !whole.empty()) ++group;
        whole.push_back(part[i]);
        whole.back().group = group;
      }
    }
    return whole;
  }
};

using PromptList = std::vector<PromptPtr>;

template <>
struct Dispatch<PromptList> {
  static std::vector<PromptList> split(const PromptList& whole, size_t n) {
    std::vector<PromptList> parts(n);
    for (size_t i = 0; i < whole.size(); ++i) parts[i * n / whole.size()].push_back(whole[i]);
    return parts;
  }
};

}  // namespace tandem
