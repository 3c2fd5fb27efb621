// tandem preflight: everything that would stop a run hours later, before anything is loaded.
#include "app/command.h"
#include "app/config_words.h"
#include "app/preflight_run.h"
#include "base/log.h"
#include "preflight/report.h"

namespace tandem {
namespace {

struct PreflightArguments {
  std::vector<std::string> words, against;
  int64_t nodes = 0;
  bool json = false;
};

int preflight(const PreflightArguments& arguments) {
  PreflightOptions options;
  options.nodes = arguments.nodes;
  options.against.assign(arguments.against.begin(), arguments.against.end());
  const PreflightReport report = run_preflight(split_words(arguments.words), options);
  print_line(arguments.json ? report_json(report.findings, report.node) : report_text(report.findings));
  return worst(report.findings) == Verdict::kFail ? 1 : 0;
}

}  // namespace

void add_preflight(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "preflight",
      "check a configuration and this machine before anything is loaded; exits with 1 where a run cannot work\n\n"
      "Words are those of tandem train. On several machines run it on each with --json, and compare:\n"
      "  tandem preflight run.yaml --nodes 2 --json > node1.json      (on the first)\n"
      "  tandem preflight run.yaml --nodes 2 --against node1.json     (on the second)");
  auto arguments = std::make_shared<PreflightArguments>();
  command->add_option("words", arguments->words, "FILE.yaml or key=value");
  command->add_flag("--json", arguments->json, "one JSON object instead of lines");
  command->add_option("--nodes", arguments->nodes, "machines that are planned; default: trainer.nnodes");
  command->add_option("--against", arguments->against, "a report of another machine (--json), to compare with")
      ->allow_extra_args(false);
  command->callback([&action, arguments] { action = [arguments] { return preflight(*arguments); }; });
}

}  // namespace tandem
