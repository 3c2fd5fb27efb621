// Which exchange a process is in, for whoever asks why it stands. Thread-safe.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <string_view>

namespace tandem {

class InFlight {
 public:
  // The operation that has been under way for longest; empty: none.
  std::string operation() const {
    const std::lock_guard lock(mutex_);
    return operations_.empty() ? std::string() : operations_.front();
  }

  // An exchange, from here to the end of the scope. `where` may be null.
  class Scope {
   public:
    Scope(InFlight* where, std::string_view operation) : where_(where) {
      if (where_ == nullptr) return;
      const std::lock_guard lock(where_->mutex_);
      place_ = where_->operations_.emplace(where_->operations_.end(), operation);
    }
    ~Scope() {
      if (where_ == nullptr) return;
      const std::lock_guard lock(where_->mutex_);
      where_->operations_.erase(place_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    InFlight* where_;
    std::list<std::string>::iterator place_;
  };

 private:
  mutable std::mutex mutex_;
  std::list<std::string> operations_;  // in the order in which they began
};

}  // namespace tandem
