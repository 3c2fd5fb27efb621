// Records that a full disk did not take: they wait, in order, and go before the next one that it takes.
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace tandem {

// Not thread-safe.
template <class Record>
class Backlog {
 public:
  explicit Backlog(size_t most) : most_(most) {}  // waiting; beyond it the oldest are given up

  // write(record) throws IoError when it cannot. One warning each time that this begins, and a word when it ends.
  template <class Write>
  void write(Record record, const Write& write) {
    waiting_.push_back(std::move(record));
    try {
      for (; !waiting_.empty(); waiting_.pop_front()) write(waiting_.front());
      if (failing_) log_info("the records that had to wait are written");
      failing_ = false;
    } catch (const IoError& error) {
      if (!failing_)
        log_warn(std::string(error.what()) + "; the run goes on, and its records wait until there is room");
      failing_ = true;
      if (waiting_.size() > most_) waiting_.pop_front();
    }
  }
  size_t size() const { return waiting_.size(); }

 private:
  size_t most_;
  std::deque<Record> waiting_;
  bool failing_ = false;
};

}  // namespace tandem
