// The journal of a training run: where it stands between the run and its roles.
#pragma once

#include <optional>

#include "config/config.h"
#include "control/journal.h"
#include "engine/engine.h"
#include "reward/reward_worker.h"

namespace tandem {

// Of all that decides what is drawn and learnt. What only decides how fast, how rewards are given (they are in the
// journal) or what is saved and shown is left out, so that a run that goes on with less memory, say, still finds its
// samples.
uint64_t journal_fingerprint(const Config& config, int64_t train_rows);

// <run folder>/journal; nothing where it is off.
std::optional<JournalOptions> journal_options(const Config& config, int64_t train_rows,
                                              const std::filesystem::path& run_folder);

// For the actor and the reward role. `journal` must outlive them, and may be filled later.
DrawnSamples drawn_samples(std::optional<Journal>& journal);
GivenRewards given_rewards(std::optional<Journal>& journal);

}  // namespace tandem
