#include "app/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace tandem {
namespace {

volatile std::sig_atomic_t pending = 0;
const char* told_text = "";

void on_signal(int signal) {
  [[maybe_unused]] const auto written = ::write(2, told_text, std::strlen(told_text));
  pending = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_interrupts(const char* told) {
  told_text = told;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool interrupted() { return pending != 0; }

}  // namespace tandem
