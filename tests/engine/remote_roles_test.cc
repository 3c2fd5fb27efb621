// A role on the other side of a link is the role itself, bit for bit.
#include "engine/remote_roles.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "checkpoint/scratch_folder.h"
#include "engine/engine.h"
#include "parallel/communicator_local.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = fs::path(TANDEM_TEST_DATA) / "models" / "qwen3_tied";

CriticOptions critic_settings() {
  CriticOptions options;
  options.model_path = kModel;
  options.max_model_len = 64;
  options.trainer.mini_batch_samples = 3;
  options.optimizer.lr = 1e-2;
  return options;
}

// Five responses of two prompts, with returns.
RolloutBatch responses_in(TrajectoryStore& store) {
  RolloutBatch batch;
  for (uint64_t i = 0; i < 5; ++i) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = i / 3;
    prompt->token_ids = {3, static_cast<TokenId>(5 + i / 3)};
    auto t = std::make_shared<Trajectory>();
    t->prompt = prompt, t->sample_index = static_cast<uint32_t>(i % 3);
    for (uint64_t n = 0; n < 2 + i; ++n)
      t->response_ids.push_back(static_cast<TokenId>(7 + (n * i) % 60)), t->rollout_logprobs.push_back(-1.F - 0.1F * n);
    Sample sample;
    sample.handle = store.put(t);
    store.set(sample.handle, &TokenRecord::returns, std::vector<double>(t->response_ids.size(), 0.25 * i));
    batch.push_back(sample);
  }
  return batch;
}

// fn(link) while `role` answers on another thread.
template <class Serve, class Fn>
void linked(const Serve& serve, const Fn& fn) {
  auto group = make_local_group(2);
  std::thread role([&] {
    RoleLink link(std::move(group[1]));
    serve(link);
  });
  fn(std::make_shared<RoleLink>(std::move(group[0])));
  role.join();
}

void train(Critic& critic, TrajectoryStore& store, std::vector<std::vector<float>>& values, Metrics& metrics) {
  for (int step = 0; step < 2; ++step) {
    const RolloutBatch batch = critic.compute_values(responses_in(store));
    for (const Sample& sample : batch) values.push_back(store.record(sample.handle).values);
    metrics = critic.update_values(batch);
  }
}

TEST(RemoteCritic, IsTheCriticItself) {
  const ScratchFolder folder;
  std::vector<std::vector<float>> here, there;
  Metrics metrics_here, metrics_there;
  const auto store = std::make_shared<TrajectoryStore>(), own = std::make_shared<TrajectoryStore>();
  Critic critic(critic_settings(), store);
  train(critic, *store, here, metrics_here);
  critic.save(folder.path() / "here");
  linked(
      [&](RoleLink& link) {
        Critic role(critic_settings(), own);
        serve_critic(role, *own, link);
      },
      [&](std::shared_ptr<RoleLink> link) {
        RemoteCritic remote(critic_settings(), store);
        remote.join(std::move(link));
        ModelStateCopy start, copy;
        remote.copy_state(start);  // before any update there are no moments
        EXPECT_TRUE(start.exp_avg.layers.empty());
        train(remote, *store, there, metrics_there);
        remote.copy_state(copy);
        remote.save_copy(folder.path() / "there", copy, nullptr);
        remote.save(folder.path() / "role");
        // Back to the start, and once more; then from a folder.
        remote.restore(start);
        std::vector<std::vector<float>> again;
        Metrics metrics;
        train(remote, *store, again, metrics);
        EXPECT_EQ(again, there);
        remote.load(folder.path() / "here");
        remote.save(folder.path() / "loaded");
        EXPECT_EQ(remote.state_bytes(), critic.state_bytes());
        EXPECT_THROW(remote.load(folder.path() / "nowhere"), Error);
        EXPECT_NO_THROW(remote.save(folder.path() / "after")) << "an error ends nothing";
      });
  EXPECT_EQ(there, here);
  ASSERT_EQ(metrics_there.size(), metrics_here.size());
  for (const Metric& metric : metrics_here) EXPECT_EQ(metrics_there.get(metric.name), metric.value) << metric.name;
  for (const char* which : {"there", "role", "loaded"})
    for (const char* file : {"huggingface/model.safetensors", "optim.safetensors"})
      EXPECT_TRUE(read_file(folder.path() / which / "critic" / file) ==
                  read_file(folder.path() / "here" / "critic" / file))
          << which << " " << file;
}

TEST(RemoteReference, IsTheReferenceItself) {
  ReferenceOptions options;
  options.model_path = kModel, options.max_model_len = 64;
  const auto store = std::make_shared<TrajectoryStore>(), own = std::make_shared<TrajectoryStore>();
  Reference reference(options, store);
  const RolloutBatch here = reference.compute_logprobs(responses_in(*store));
  linked(
      [&](RoleLink& link) {
        Reference role(options, own);
        serve_reference(role, *own, link);
      },
      [&](std::shared_ptr<RoleLink> link) {
        RemoteReference remote(options, store);
        remote.join(std::move(link));
        const RolloutBatch there = remote.compute_logprobs(responses_in(*store));
        for (size_t i = 0; i < here.size(); ++i) {
          EXPECT_EQ(there[i].kl, here[i].kl);
          EXPECT_EQ(store->record(there[i].handle).ref_logprobs, store->record(here[i].handle).ref_logprobs);
        }
      });
}

}  // namespace
}  // namespace tandem
