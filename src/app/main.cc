// The program: one file a subcommand; everything else is behind them.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string_view>

#include "app/command.h"
#include "base/error.h"
#include "base/log.h"

namespace tandem {

namespace {

constexpr const char* kExamples = R"(Examples:
  tandem quickstart --model DIR                     train a small model on sums and watch it learn
  tandem data arithmetic --out data                 make train.parquet and test.parquet
  tandem train examples/grpo_trainer/gsm8k.yaml actor_rollout_ref.model.path=DIR
  tandem train --print-config key=value ...         every key, its meaning and the sizes that follow; trains nothing
  tandem sft model.path=DIR data.train_files=FILE   fine-tune on conversations; reward-model: on pairs of replies
  tandem dashboard runs                             watch runs in the browser
  tandem debug RUN_FOLDER                           what each process of a run does
  tandem generate DIR                               chat in the terminal
  tandem serve DIR                                  answer OpenAI clients, and a chat page in the browser
  tandem logprobs DIR file.jsonl                    log-probs of token ids or chats

Each subcommand explains itself: tandem train --help)";

// Threads that spin while they wait cost a shared machine several times the work itself. libgomp reads its policy when
// it is loaded, so the program starts itself once more with the policy set.
void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  ::execv("/proc/self/exe", argv);  // where this fails, spinning it is
}

int run(int argc, char** argv) {
  CLI::App app("Tandem: reinforcement-learning post-training of language models. One engine generates and trains.");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "explain and exit");
  Action action;
  add_quickstart(app, action);
  add_train(app, action);
  add_sft(app, action);
  add_reward_model(app, action);
  add_generate(app, action);
  add_serve(app, action);
  add_logprobs(app, action);
  add_data(app, action);
  add_convert(app, action);
  add_replay(app, action);
  add_preflight(app, action);
  add_simulate(app, action);
  add_plan(app, action);
  add_bench(app, action);
  add_dashboard(app, action);
  add_debug(app, action);
  add_docs(app, action);
  app.add_subcommand("version", "print the version")->callback([&] {
    action = [] { return std::puts("tandem " TANDEM_VERSION), 0; };
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return action();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    tandem::wait_passively(argv);
    tandem::set_num_threads(0);
    return tandem::run(argc, argv);
  } catch (const tandem::Error& error) {
    tandem::log_error(error.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& error) {
    tandem::log_error(error.path1().string() + ": " + error.code().message() + "; check the path and its permissions");
    return 2;
  } catch (const std::bad_alloc&) {
    tandem::log_error(
        "out of memory; lower the cache (--kv-cache-mb, in training "
        "actor_rollout_ref.rollout.kv_cache_memory_mb) or the lengths");
    return 2;
  } catch (const std::exception& error) {  // libtorch adds the stack on further lines
    const std::string_view text = error.what();
    tandem::log_error(text.substr(0, text.find('\n')));
    return 3;
  }
}
