// tandem docs: the generated page docs/config.md, on stdout.
#include <cstdio>

#include "app/command.h"
#include "config/describe.h"

namespace tandem {

void add_docs(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("docs", "print docs/config.md")->group("");
  command->callback([&action] { action = [] { return std::fputs(config_markdown().c_str(), stdout) >= 0 ? 0 : 1; }; });
}

}  // namespace tandem
