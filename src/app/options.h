// From the configuration's keys to what each part asks for. Pure functions.
#pragma once

#include <filesystem>

#include "app/model_reward.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "programs/program.h"
#include "reward/overlong.h"
#include "reward/reward.h"

namespace tandem {

// A folder, or a Hugging Face hub id found in the local cache (HF_HUB_CACHE, HF_HOME). ConfigError with the download
// command where it is not; `key` is what names the model.
std::filesystem::path resolve_model(const std::string& path, std::string_view key = "actor_rollout_ref.model.path");

// Refuses what is legal configuration but cannot be run by this build, naming key and way out. Returns its argument.
Config supported(Config config);

std::filesystem::path run_folder(const Config& config);

EngineOptions engine_options(const Config& config, const SpecialIds& special, int64_t total_optimizer_steps);
ReferenceOptions reference_options(const Config& config);
bool needs_reference(const Config& config);
CriticOptions critic_options(const Config& config, int64_t total_steps);  // steps of the run
bool needs_critic(const Config& config);
// Nothing where every token of a sample has the same advantage.
std::optional<TokenAdvantageOptions> token_advantage_options(const Config& config);
ProgramOptions program_options(const Config& config, size_t num_train_prompts);
RewardOptions reward_options(const Config& config);
std::optional<ModelRewardOptions> model_reward_options(const Config& config);  // of reward_model.type=model
OverlongOptions overlong_options(const Config& config);
DatasetOptions train_data_options(const Config& config);
DatasetOptions validation_data_options(const Config& config);
LoaderOptions loader_options(const Config& config);

OptimizerOptions optimizer_options(const OptimConfig& optim, int64_t total_steps);
CheckpointContents checkpoint_contents(const std::vector<std::string>& names);

}  // namespace tandem
