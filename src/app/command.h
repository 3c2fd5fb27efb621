// One subcommand of the program.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem {

// Adds a subcommand; when it was chosen, parsing sets `action` to what it does. The result is the exit code.
using Action = std::function<int()>;
void add_train(CLI::App& app, Action& action);
void add_sft(CLI::App& app, Action& action);
void add_reward_model(CLI::App& app, Action& action);
void add_quickstart(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_logprobs(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_preflight(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_dashboard(CLI::App& app, Action& action);
void add_debug(CLI::App& app, Action& action);
void add_docs(CLI::App& app, Action& action);  // hidden: writes docs/config.md

// Threads of the kernels; 0: one a core.
void set_num_threads(int64_t threads);

}  // namespace tandem
