#include "app/model_reward.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "data/tuning_set.h"

namespace tandem {

ModelReward::ModelReward(const ModelRewardOptions& options)
    : chat_(options.model_path), model_(options.model_path, options.device, options.max_micro_tokens) {}

std::future<RewardResult> ModelReward::submit(RewardRequest request) {
  std::future<RewardResult> result;
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back({std::move(request), {}});
    result = pending_.back().result.get_future();
  }
  return std::async(std::launch::deferred, [this, result = std::move(result)]() mutable {
    score_pending();
    return result.get();
  });
}

TrajectoryPtr ModelReward::reply_of(const RewardRequest& request, const PromptPtr& shared) const {
  std::vector<Message> messages = request.messages;
  messages.push_back({"assistant", request.solution_str});
  MaskedChat chat = chat_.encode_masked(messages, "{}", request.messages.size());
  end_with_reply(chat);
  if (static_cast<int64_t>(chat.ids.size()) > model_.max_length())
    throw DataError(fmt::format("{}: {} tokens, but the reward model was made for {}; shorten data.max_response_length",
                                sample_name(request), chat.ids.size(), model_.max_length()));
  TrajectoryPtr reply = make_sample(std::move(chat), shared);
  if (!reply) throw DataError(sample_name(request) + ": the reward model's chat template leaves nothing of its reply");
  return reply;
}

void ModelReward::score_pending() {
  const std::lock_guard lock(mutex_);
  std::vector<Pending> all = std::move(pending_);
  pending_.clear();
  // Neighbours share their prompt, and scores do not depend on the order in which responses came.
  std::ranges::sort(all, {}, [](const Pending& p) { return std::tuple(p.request.prompt_id, p.request.sample_index); });
  std::vector<TrajectoryPtr> replies;
  std::vector<Pending*> scored;
  for (Pending& pending : all) {
    try {
      replies.push_back(reply_of(pending.request, replies.empty() ? nullptr : replies.back()->prompt));
      scored.push_back(&pending);
    } catch (...) {
      pending.result.set_exception(std::current_exception());
    }
  }
  const std::vector<float> scores = model_.score(replies);
  for (size_t i = 0; i < scores.size(); ++i) {
    try {
      check_score(scores[i], scored[i]->request);
      scored[i]->result.set_value({scores[i], {}});
    } catch (...) {
      scored[i]->result.set_exception(std::current_exception());
    }
  }
}

}  // namespace tandem
