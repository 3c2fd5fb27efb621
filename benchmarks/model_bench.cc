// `tandem bench` alone, without what the other subcommands link.
#include <cstdio>
#include <exception>

#include "app/command.h"

int main(int argc, char** argv) {
  CLI::App app("times the engine on random weights");
  app.require_subcommand(1);
  tandem::Action action;
  tandem::add_bench(app, action);
  CLI11_PARSE(app, argc, argv);
  try {
    return action();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
