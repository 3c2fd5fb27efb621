// tandem docs: the generated page docs/config.md, on stdout.
#include "app/command.h"
#include "base/log.h"
#include "config/describe.h"

namespace tandem {

void add_docs(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("docs", "print docs/config.md")->group("");
  command->callback([&action] { action = [] { return print_line(config_markdown()), 0; }; });
}

}  // namespace tandem
