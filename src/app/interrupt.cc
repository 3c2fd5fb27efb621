#include "app/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace tandem {
namespace {

volatile std::sig_atomic_t pending = 0;

void on_signal(int signal) {
  const char* text = "\nending after this step, with a checkpoint; once more ends at once\n";
  [[maybe_unused]] const auto written = ::write(2, text, std::strlen(text));
  pending = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool interrupted() { return pending != 0; }

}  // namespace tandem
