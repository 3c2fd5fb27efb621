#include "engine/remote_roles.h"

#include <exception>

#include "base/error.h"
#include "data/payload.h"
#include "engine/wire.h"
#include "parallel/collectives.h"

namespace tandem {
namespace {

enum Question : char { kLogprobs, kValues, kUpdateValues, kSaveRole, kLoadRole, kCopyRole, kRestoreRole, kLetGo };
constexpr std::string_view kAsk = "question to a role", kAnswer = "answer of a role", kState = "state of a role";

PayloadReader role_reader(const std::string& bytes) { return PayloadReader(std::as_bytes(std::span(bytes))); }

std::string samples_of(const RolloutBatch& batch, const TrajectoryStore& store) {
  std::vector<TrainingSample> samples;
  for (const Sample& sample : batch) samples.push_back(training_sample(store, sample));
  return encode_samples(samples);
}

// The samples in the role's own store, as its calls take them.
RolloutBatch stored(const std::string& payload, TrajectoryStore& store) {
  store.clear();
  RolloutBatch batch;
  for (TrainingSample& sample : decode_samples(payload)) {
    Sample& out = batch.emplace_back();
    out.handle = store.put(sample.trajectory);
    out.advantage = sample.advantage;
    store.set(out.handle, &TokenRecord::ref_logprobs, std::move(sample.ref_logprobs));
    store.set(out.handle, &TokenRecord::advantages, std::move(sample.advantages));
    store.set(out.handle, &TokenRecord::old_logprobs, std::move(sample.old_logprobs));
    store.set(out.handle, &TokenRecord::importance_weights, std::move(sample.importance_weights));
    store.set(out.handle, &TokenRecord::mask, std::move(sample.mask));
    store.set(out.handle, &TokenRecord::values, std::move(sample.old_values));
    store.set(out.handle, &TokenRecord::returns, std::move(sample.returns));
  }
  return batch;
}

template <class Get>
std::string encode_lists(size_t count, const Get& get) {
  PayloadWriter out;
  for (size_t i = 0; i < count; ++i) out.put_list(get(i));
  return out.bytes();
}

std::vector<std::vector<float>> decode_lists(const std::string& bytes, size_t count) {
  PayloadReader in = role_reader(bytes);
  std::vector<std::vector<float>> lists;
  for (size_t i = 0; i < count; ++i) lists.push_back(in.get_list<std::vector<float>>());
  return lists;
}

// From `root` to the other; the copy's tensors are there on both sides.
void send_state(Communicator& group, const ModelStateCopy& copy, bool moments, int root) {
  std::vector<const DecoderWeights*> all{&copy.weights};
  if (moments) all.insert(all.end(), {&copy.exp_avg, &copy.exp_avg_sq});
  for (const DecoderWeights* weights : all)
    for (const NamedTensor& parameter : parameters(*weights))
      broadcast(group, kState, bytes_of(values(parameter.tensor).data(), values(parameter.tensor).size()), root);
}

struct StateHead {
  uint64_t version = 0;
  int64_t optimizer_steps = 0;
  bool moments = false;
};

StateHead head_of(const ModelStateCopy& copy) {
  return {copy.version, copy.optimizer_steps, !copy.exp_avg.layers.empty()};
}

std::string encode_head(const StateHead& head) {
  return PayloadWriter().put(head.version).put(head.optimizer_steps).put<uint8_t>(head.moments).bytes();
}

// A copy of that state, to be filled.
void prepare(const std::string& bytes, const ModelConfig& model, ModelStateCopy& copy) {
  PayloadReader in = role_reader(bytes);
  copy.version = in.get<uint64_t>();
  copy.optimizer_steps = in.get<int64_t>();
  const bool moments = in.get<uint8_t>() != 0;
  if (copy.weights.layers.empty()) copy.weights = zero_weights(model);
  if (!moments) copy.exp_avg = copy.exp_avg_sq = {};
  if (moments && copy.exp_avg.layers.empty()) copy.exp_avg = zero_weights(model), copy.exp_avg_sq = zero_weights(model);
}

void let_go(const std::shared_ptr<RoleLink>& link) {
  if (!link || std::uncaught_exceptions() > 0) return;
  try {
    link->ask(kLetGo, {});
  } catch (const std::exception&) {  // it is gone; the run has said so
  }
}

// `answer_to(question, payload)` until the role is let go.
template <class AnswerTo>
void serve(RoleLink& link, const AnswerTo& answer_to) {
  for (;;) {
    const std::string message = link.next();
    if (message.at(0) == kLetGo) return link.answer({});
    try {
      answer_to(static_cast<Question>(message.at(0)), message.substr(1));
    } catch (const CommunicationError&) {
      throw;
    } catch (const Error& error) {
      link.answer(error.what(), false);
    }
  }
}

}  // namespace

std::string RoleLink::ask(char question, const std::string& payload) {
  broadcast_text(*group_, kAsk, question + payload, 0);
  std::string answer = broadcast_text(*group_, kAnswer, {}, 1);
  const bool went_well = answer.at(0) != 0;
  answer.erase(0, 1);
  if (!went_well) throw DataError(answer);
  return answer;
}

std::string RoleLink::next() { return broadcast_text(*group_, kAsk, {}, 0); }

void RoleLink::answer(const std::string& payload, bool went_well) {
  broadcast_text(*group_, kAnswer, static_cast<char>(went_well) + payload, 1);
}

RemoteReference::RemoteReference(const ReferenceOptions& options, std::shared_ptr<TrajectoryStore> store)
    : Reference(options, nullptr, std::move(store)) {}

RemoteReference::~RemoteReference() { let_go(link_); }

std::vector<std::vector<float>> RemoteReference::logprobs_of(const RolloutBatch& batch) {
  return decode_lists(link_->ask(kLogprobs, samples_of(batch, store())), batch.size());
}

RemoteCritic::RemoteCritic(CriticOptions options, std::shared_ptr<TrajectoryStore> store)
    : Critic(std::move(options), std::move(store), nullptr), model_(load_model_config(this->options().model_path)) {
  model_.value_head = true;
}

RemoteCritic::~RemoteCritic() { let_go(link_); }

RolloutBatch RemoteCritic::compute_values(const RolloutBatch& batch) {
  auto values = decode_lists(link_->ask(kValues, samples_of(batch, store())), batch.size());
  for (size_t i = 0; i < batch.size(); ++i) store().set(batch[i].handle, &TokenRecord::values, std::move(values[i]));
  return batch;
}

Metrics RemoteCritic::update_values(const RolloutBatch& batch) {
  const std::string answer = link_->ask(kUpdateValues, samples_of(batch, store()));
  PayloadReader in = role_reader(answer);
  Metrics metrics;
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    const auto name = in.get_list<std::string>();
    metrics.set(name, in.get<double>());
  }
  return metrics;
}

void RemoteCritic::save(const std::filesystem::path& folder) const { link_->ask(kSaveRole, folder.string()); }
void RemoteCritic::load(const std::filesystem::path& folder) { link_->ask(kLoadRole, folder.string()); }

void RemoteCritic::copy_state(ModelStateCopy& into) const {
  prepare(link_->ask(kCopyRole, {}), model_, into);
  send_state(link_->group(), into, !into.exp_avg.layers.empty(), 1);
}

void RemoteCritic::restore(const ModelStateCopy& copy) {
  const StateHead head = head_of(copy);
  link_->ask(kRestoreRole, encode_head(head));
  send_state(link_->group(), copy, head.moments, 0);
}

uint64_t RemoteCritic::state_bytes() const { return 3 * sizeof(float) * static_cast<uint64_t>(num_parameters(model_)); }

void serve_reference(Reference& reference, TrajectoryStore& store, RoleLink& link) {
  serve(link, [&](Question question, const std::string& payload) {
    check(question == kLogprobs, "a reference is asked for log-probs only");
    const RolloutBatch batch = stored(payload, store);
    reference.compute_logprobs(batch);
    link.answer(encode_lists(batch.size(), [&](size_t i) { return store.record(batch[i].handle).ref_logprobs; }));
  });
}

void serve_critic(Critic& critic, TrajectoryStore& store, RoleLink& link) {
  ModelStateCopy copy;
  serve(link, [&](Question question, const std::string& payload) {
    switch (question) {
      case kValues: {
        const RolloutBatch batch = critic.compute_values(stored(payload, store));
        return link.answer(encode_lists(batch.size(), [&](size_t i) { return store.record(batch[i].handle).values; }));
      }
      case kUpdateValues: {
        const Metrics metrics = critic.update_values(stored(payload, store));
        PayloadWriter out;
        out.put<uint64_t>(metrics.size());
        for (const Metric& metric : metrics) out.put_list(metric.name).put(metric.value);
        return link.answer(out.bytes());
      }
      case kSaveRole:
        critic.save(payload);
        return link.answer({});
      case kLoadRole:
        critic.load(payload);
        return link.answer({});
      case kCopyRole:
        critic.copy_state(copy);
        link.answer(encode_head(head_of(copy)));
        return send_state(link.group(), copy, head_of(copy).moments, 1);
      case kRestoreRole:
        prepare(payload, critic.model(), copy);
        link.answer({});
        send_state(link.group(), copy, head_of(copy).moments, 0);
        return critic.restore(copy);
      default:
        check(false, "a question that a critic cannot answer");
    }
  });
}

}  // namespace tandem
