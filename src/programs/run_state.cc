#include "programs/run_state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void write_progressed(const fs::path& folder, const Progressed& progressed) {
  const json data{{"epoch", progressed.data.loader.epoch},
                  {"next_batch_in_epoch", progressed.data.loader.next_batch_in_epoch},
                  {"fingerprint", progressed.data.loader.fingerprint},
                  {"taken", progressed.data.taken}};
  write_file_atomic(folder / "data.json", data.dump(2) + "\n");
  if (progressed.kl_coefficient)
    write_file_atomic(folder / "program.json", json{{"kl_coef", progressed.kl_coefficient.value()}}.dump(2) + "\n");
  if (!progressed.rollouts.empty()) write_rollouts(folder / "rollouts.bin", progressed.rollouts);
}

}  // namespace

uint64_t run_state_bytes(const StatefulRoles& roles) {
  return roles.actor.state_bytes() + (roles.critic != nullptr ? roles.critic->state_bytes() : 0);
}

void copy_run_state(const StatefulRoles& roles, Progressed progressed, RunState& into) {
  roles.actor.copy_state(into.actor);
  if (roles.critic != nullptr) roles.critic->copy_state(into.critic);
  into.progressed = std::move(progressed);
}

void restore_run_state(const RunState& state, const StatefulRoles& roles) {
  roles.actor.restore(state.actor);
  if (roles.critic != nullptr) roles.critic->restore(state.critic);
}

void write_run_state(const fs::path& folder, const RunState& state, const StatefulRoles& roles, WritePace* pace) {
  roles.actor.save_copy(folder, state.actor, pace);
  if (roles.critic != nullptr) roles.critic->save_copy(folder, state.critic, pace);
  write_progressed(folder, state.progressed);
}

void write_run_state(const fs::path& folder, const Progressed& progressed, const StatefulRoles& roles) {
  roles.actor.save(folder);
  if (roles.critic != nullptr) roles.critic->save(folder);
  write_progressed(folder, progressed);
}

Progressed read_run_state(const fs::path& folder, int64_t step, const StatefulRoles& roles) {
  roles.actor.load(folder);
  if (roles.critic != nullptr) roles.critic->load(folder);
  Progressed progressed;
  progressed.step = step;
  const fs::path data_path = folder / "data.json", program_path = folder / "program.json";
  try {
    const json data = json::parse(read_file(data_path));
    progressed.data.loader = {data.at("epoch"), data.at("next_batch_in_epoch"), data.at("fingerprint")};
    progressed.data.taken = data.value("taken", uint64_t{0});
    if (fs::exists(program_path))
      progressed.kl_coefficient = json::parse(read_file(program_path)).at("kl_coef").get<double>();
  } catch (const json::exception&) {
    throw IoError(folder.string() +
                  " holds no training run's place in its data (data.json, program.json): resume from "
                  "another checkpoint");
  }
  if (fs::exists(folder / "rollouts.bin")) progressed.rollouts = read_rollouts(folder / "rollouts.bin");
  return progressed;
}

}  // namespace tandem
