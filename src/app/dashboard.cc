// tandem dashboard: a page that shows runs, those that are still running live.
#include "dashboard/server.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "app/command.h"
#include "app/interrupt.h"
#include "app/watch_run.h"
#include "base/error.h"
#include "base/log.h"

namespace tandem {
namespace {

struct DashboardArguments {
  std::vector<std::string> folders;
  std::string host = "127.0.0.1";
  int port = 8265;
};

int serve(const DashboardArguments& arguments) {
  DashboardOptions options{
      {arguments.folders.begin(), arguments.folders.end()}, arguments.host, arguments.port, tokenizer_texts()};
  if (options.roots.empty()) options.roots = {"runs"};
  for (const auto& root : options.roots)
    if (!std::filesystem::is_directory(root))
      throw IoError(fmt::format("{} is no folder; name the folder of a run, or one that holds several", root.string()));
  const Dashboard dashboard(std::move(options), "--port");
  print_line(fmt::format("dashboard: {}  (Ctrl-C ends it)", dashboard.url()));
  catch_interrupts("");
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return 0;
}

}  // namespace

void add_dashboard(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "dashboard",
      "show runs in the browser\n\n"
      "FOLDERS are runs or hold runs (default: runs). Curves, samples, timings, validation, configurations and logs,\n"
      "live while a run writes. It only reads; /metrics is there for Prometheus. docs/dashboard.md has the rest.");
  auto a = std::make_shared<DashboardArguments>();
  command->add_option("folders", a->folders, "runs, or folders of runs");
  command->add_option("--port", a->port, "where it listens; 0: any free port")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--host", a->host, "address to listen on; 0.0.0.0: everyone who reaches this machine may look")
      ->capture_default_str();
  command->callback([&action, a] { action = [a] { return serve(*a); }; });
}

}  // namespace tandem
