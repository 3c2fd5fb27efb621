#include "rollout/generator.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"
#include "rollout/sampler.h"
#include "rollout/split_sampler.h"

namespace tandem {
namespace {

using kernels::kKvBlock;
constexpr int64_t kLogitRows = 64, kDeviceLogitRows = 2048;  // rows of logits held at once
constexpr int64_t kMaxReplayed = 256;  // sequences; beyond it a pass takes longer than launching it

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

// One token to draw from row `row` of the pass: for the sequence itself, or for a sample that forks off its prompt.
struct Generator::Draw {
  Sequence* sequence;
  uint32_t sample_index;
  size_t row;
  DrawnToken token;
  std::exception_ptr failure;

  // What goes wrong is this draw's alone: others of the pass go on.
  template <class Fn>
  void take(Fn draw) {
    try {
      token = draw();
    } catch (const DataError&) {
      failure = std::current_exception();
    }
  }
};

bool Generator::wants_top(const Draw& draw) { return draw.sequence->request->params.top_logprobs > 0; }

Generator::Generator(const Decoder& decoder, const GeneratorOptions& options, const Tokenizer* tokenizer,
                     FinishCallback on_finish)
    : decoder_(decoder),
      options_(options),
      tokenizer_(tokenizer),
      on_finish_(std::move(on_finish)),
      blocks_(options.num_blocks, options.prefix_caching),
      scheduler_(options.scheduler, blocks_),
      kv_(decoder.make_kv(options.num_blocks)) {
  check(options.max_model_len <= options.num_blocks * kKvBlock, "the paged cache is smaller than one sequence");
}

void Generator::add(std::shared_ptr<const GenerationRequest> request) {
  validate(request->params);
  const auto length = static_cast<int64_t>(request->prompt->token_ids.size());
  check(request->num_samples > 0, "a request asks for no sample");
  if (length == 0) throw DataError("prompt " + std::to_string(request->prompt->id) + " has no tokens");
  if (length >= options_.max_model_len)
    throw DataError("prompt " + std::to_string(request->prompt->id) + " has " + std::to_string(length) +
                    " tokens and leaves no room for a response in max_model_len " +
                    std::to_string(options_.max_model_len));
  if (decoder_.on_device() && barred_ids(request->params, false).size() > kernels::kMaxBarredIds &&
      request->params.min_tokens > 1)
    throw ConfigError("with min_tokens, at most " + std::to_string(kernels::kMaxBarredIds) +
                      " ids may end a response on a GPU; name fewer stop_token_ids, or set min_tokens=0");
  check(request->sample_indices.empty() || request->sample_indices.size() == request->num_samples,
        "a request names other samples than it asks for");
  SequencePtr leader = new_sequence(request, request->index_of(0));
  leader->num_forks = request->num_samples - 1;
  scheduler_.add(std::move(leader));
  stats_.num_prompt_tokens += length;
}

SequencePtr Generator::new_sequence(const std::shared_ptr<const GenerationRequest>& request,
                                    uint32_t sample_index) const {
  auto sequence = std::make_unique<Sequence>();
  sequence->request = request;
  sequence->sample_index = sample_index;
  sequence->tokens = request->prompt->token_ids;
  if (request->on_text || !request->params.stop.empty()) {
    check(tokenizer_ != nullptr, "stop strings and streaming need a tokenizer");
    sequence->text.emplace(tokenizer_->stream(), request->params.stop);
  }
  return sequence;
}

bool Generator::step() {
  if (options_.preempt_every > 0 && stats_.num_passes % options_.preempt_every == options_.preempt_every - 1)
    scheduler_.preempt(1);
  GeneratorPass told;
  if (options_.on_pass) told.begin = std::chrono::steady_clock::now();
  const std::vector<ScheduledSequence> pass = scheduler_.schedule();
  if (pass.empty()) return false;
  std::vector<int32_t> rows;
  std::vector<Draw> draws;
  const TokenBatch batch = make_batch(pass, rows, draws);
  if (may_replay(batch, draws)) {
    scheduler_.mark_computed(pass);
    replay(batch, draws);
  } else {
    const at::Tensor x = decoder_.forward(batch, kv_);
    scheduler_.mark_computed(pass);
    draw_tokens(decoder_.final_norm(x, rows), draws);
  }
  drop_failed(draws);
  for (Draw& draw : draws) {
    if (draw.sample_index == draw.sequence->sample_index) {
      continue_sequence(*draw.sequence, draw.token);
    } else {
      start_fork(*draw.sequence, draw.sample_index, draw.token);
    }
  }
  ++stats_.num_passes;
  stats_.num_computed_tokens += batch.num_tokens();
  if (options_.on_pass) {
    told.end = std::chrono::steady_clock::now();
    told.num_sequences = static_cast<int64_t>(pass.size());
    told.num_tokens = batch.num_tokens(), told.num_drawn = static_cast<int64_t>(draws.size());
    options_.on_pass(told);
  }
  return true;
}

TokenBatch Generator::make_batch(std::span<const ScheduledSequence> pass, std::vector<int32_t>& rows,
                                 std::vector<Draw>& draws) const {
  TokenBatch batch;
  batch.num_blocks = options_.num_blocks;
  for (const auto& [sequence, num_tokens] : pass) {
    const auto first = static_cast<int32_t>(batch.ids.size());
    batch.attention.spans.push_back({first, static_cast<int32_t>(num_tokens),
                                     static_cast<int32_t>(sequence->num_computed),
                                     static_cast<int32_t>(batch.attention.block_tables.size())});
    auto& tables = batch.attention.block_tables;
    tables.insert(tables.end(), sequence->blocks.begin(), sequence->blocks.end());
    for (int64_t i = 0; i < num_tokens; ++i) {
      const int64_t position = sequence->num_computed + i;
      batch.ids.push_back(sequence->tokens[position]);
      batch.positions.push_back(static_cast<int32_t>(position));
      batch.writes.push_back(
          {first + static_cast<int32_t>(i),
           static_cast<int32_t>(sequence->blocks[position / kKvBlock] * kKvBlock + position % kKvBlock)});
    }
    if (num_tokens < sequence->num_to_compute()) continue;  // a prompt's later piece follows
    // Forks come first: they share the prompt's blocks before the leader's own token can end it. On the CPU all draw
    // from one row of logits; a GPU takes a row a draw.
    const int32_t last = first + static_cast<int32_t>(num_tokens) - 1;
    for (uint32_t fork = 1; fork <= sequence->num_forks + 1; ++fork) {
      if (fork == 1 || decoder_.on_device()) rows.push_back(last);
      const uint32_t sample = fork <= sequence->num_forks ? sequence->request->index_of(fork) : sequence->sample_index;
      draws.push_back({sequence, sample, rows.size() - 1, {}, {}});
    }
    sequence->num_forks = 0;
  }
  return batch;
}

void Generator::draw_tokens(const at::Tensor& normed, std::vector<Draw>& draws) const {
  const int64_t num_rows = normed.size(0), rows_at_once = decoder_.on_device() ? kDeviceLogitRows : kLogitRows;
  const bool split = decoder_.split() != nullptr;
  const at::Tensor buffer =
      split ? at::Tensor()
            : kernels::empty_fp32({std::min(rows_at_once, num_rows), decoder_.config().vocab_size}, normed);
  size_t next = 0;
  for (int64_t begin = 0; begin < num_rows; begin += rows_at_once) {
    const int64_t count = std::min(rows_at_once, num_rows - begin);
    at::Tensor logits;
    if (split) {
      logits = decoder_.own_logits(normed.narrow(0, begin, count));
    } else {
      logits = buffer.narrow(0, 0, count);
      decoder_.logits(normed.narrow(0, begin, count), logits);
    }
    size_t end = next;
    while (end < draws.size() && static_cast<int64_t>(draws[end].row) < begin + count) ++end;
    const std::span<Draw> some = std::span(draws).subspan(next, end - next);
    next = end;
    if (decoder_.on_device()) {
      draw_on_device(logits, some);
      continue;
    }
    std::vector<SplitDraw> asked;
    for (const Draw& draw : some) {
      const Sequence& sequence = *draw.sequence;
      SampleKey key = sequence.key();
      key.sample_index = draw.sample_index;
      const auto position = static_cast<uint32_t>(sequence.response_length());
      const SamplingParams& params = sequence.request->params;
      const float* row = kernels::f32(logits) + (static_cast<int64_t>(draw.row) - begin) * logits.size(1);
      asked.push_back({{row, static_cast<size_t>(logits.size(1))},
                       params,
                       position + 1 >= params.min_tokens,
                       uniform_for(key, position)});
    }
    if (split) {
      std::vector<SplitDrawn> found = tandem::draw_tokens(*decoder_.split(), asked, options_.num_drawable);
      for (size_t i = 0; i < some.size(); ++i)
        some[i].token = std::move(found[i].token), some[i].failure = found[i].failure;
      continue;
    }
    kernels::parallel_for(std::ssize(some), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        some[i].take(
            [&, &a = asked[i]] { return draw_token(a.own, a.params, options_.num_drawable, a.may_end, a.uniform); });
    });
  }
}

// Few sequences of one token each: the pass is recorded for the next power of two, and replayed.
bool Generator::may_replay(const TokenBatch& batch, std::span<const Draw> draws) const {
  const auto count = static_cast<int64_t>(draws.size());
  return decoder_.on_device() && count <= kMaxReplayed && count == batch.num_tokens() &&
         draws.size() == batch.attention.spans.size() && std::ranges::none_of(draws, wants_top);
}

void Generator::replay(const TokenBatch& batch, std::span<Draw> draws) {
  const auto rows = draw_rows(draws);
  const bool narrowing = std::ranges::any_of(rows, [](const kernels::DrawRow& row) {
    return !row.greedy && (row.top_k > 0 || row.top_p < 1 || row.min_p > 0);
  });
  const auto sequences = static_cast<int64_t>(std::max<uint64_t>(8, std::bit_ceil(draws.size())));
  auto& graph = graphs_[{sequences, narrowing}];
  if (!graph) {
    const int64_t vocab = decoder_.config().vocab_size, blocks = (options_.max_model_len + kKvBlock - 1) / kKvBlock;
    graph = kernels::record_decode({decoder_.heads(), sequences, blocks, options_.num_drawable, narrowing},
                                   [&](const kernels::PlacedBatch& placed) {
                                     const at::Tensor x = decoder_.forward(placed, kv_);
                                     at::Tensor logits = kernels::empty_fp32({x.size(0), vocab}, x);
                                     decoder_.logits(decoder_.final_norm(x), logits);
                                     return logits;
                                   });
  }
  std::vector<kernels::Drawn> drawn(draws.size());
  graph->replay(batch, rows, drawn);
  for (size_t i = 0; i < draws.size(); ++i)
    draws[i].take([&] { return checked_draw(drawn[i].id, drawn[i].logprob, drawn[i].entropy); });
}

std::vector<kernels::DrawRow> Generator::draw_rows(std::span<const Draw> draws) {
  std::vector<kernels::DrawRow> rows;
  for (const Draw& draw : draws) {
    const SamplingParams& params = draw.sequence->request->params;
    SampleKey key = draw.sequence->key();
    const auto position = static_cast<uint32_t>(draw.sequence->response_length());
    rows.push_back({philox_key(key.seed, key.policy_version), key.prompt_id, draw.sample_index, position,
                    static_cast<float>(1.0 / params.effective_temperature()), params.temperature == 0,
                    static_cast<int32_t>(params.top_k), params.top_p, params.min_p,
                    barred_ids(params, position + 1 >= params.min_tokens)});
  }
  return rows;
}

void Generator::draw_on_device(const at::Tensor& logits, std::span<Draw> draws) const {
  const auto rows = draw_rows(draws);
  std::vector<kernels::Drawn> drawn(draws.size());
  kernels::draw(logits, options_.num_drawable, rows, drawn);
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i].take([&] { return checked_draw(drawn[i].id, drawn[i].logprob, drawn[i].entropy); });
    if (!wants_top(draws[i]) || draws[i].failure) continue;
    const at::Tensor row = logits[static_cast<int64_t>(i)].cpu();
    draws[i].token.top = top_logprobs({kernels::f32(row), static_cast<size_t>(row.numel())},
                                      draws[i].sequence->request->params, options_.num_drawable);
  }
}

// A request whose draw failed is dropped as a whole before anything of this pass is kept of it.
void Generator::drop_failed(std::vector<Draw>& draws) {
  std::map<std::shared_ptr<const GenerationRequest>, std::exception_ptr> failed;
  for (const Draw& draw : draws)
    if (draw.failure) failed.emplace(draw.sequence->request, draw.failure);
  if (failed.empty()) return;
  std::erase_if(draws, [&](const Draw& draw) { return failed.contains(draw.sequence->request); });
  for (const auto& [request, failure] : failed) {
    cancel(*request);
    if (!request->on_failure) std::rethrow_exception(failure);
    request->on_failure(failure);
  }
}

void Generator::continue_sequence(Sequence& sequence, const DrawnToken& token) {
  if (const auto reason = append(sequence, token)) finish(scheduler_.remove(&sequence), *reason);
}

// A sample takes the leader's prompt: whole blocks shared, the last piece copied. Without room it waits like any other.
void Generator::start_fork(const Sequence& leader, uint32_t sample_index, const DrawnToken& token) {
  SequencePtr sequence = new_sequence(leader.request, sample_index);
  const int64_t length = leader.prompt_length(), whole = length / kKvBlock;
  std::optional<int32_t> tail;
  const bool has_tail = length % kKvBlock != 0;
  if (has_tail) tail = blocks_.allocate();
  if (tail || !has_tail) {
    sequence->blocks.assign(leader.blocks.begin(), leader.blocks.begin() + whole);
    for (const int32_t block : sequence->blocks) blocks_.share(block);
    if (tail) {
      const kernels::BlockCopy copy{leader.blocks[whole], *tail};
      kernels::copy_kv_blocks(kv_, {&copy, 1});
      sequence->blocks.push_back(*tail);
    }
    sequence->num_computed = length;
  }
  if (const auto reason = append(*sequence, token)) {
    for (const int32_t block : sequence->blocks) blocks_.release(block);
    finish(std::move(sequence), *reason);
  } else if (sequence->blocks.empty()) {
    scheduler_.add(std::move(sequence));
  } else {
    scheduler_.add_running(std::move(sequence));
  }
}

// Adds a token; says why the response ends with it, if it does.
std::optional<StopReason> Generator::append(Sequence& sequence, const DrawnToken& token) const {
  const SamplingParams& params = sequence.request->params;
  sequence.tokens.push_back(token.id);
  sequence.logprobs.push_back(token.logprob);
  sequence.entropy_sum += token.entropy;
  if (sequence.request->on_token) sequence.request->on_token(sequence.sample_index, token);
  const int64_t length = sequence.response_length();
  const bool may_end = length >= params.min_tokens;
  const bool is_eos = !params.ignore_eos && contains(params.eos_ids, token.id);
  if (sequence.text && !is_eos) sequence.text->push(token.id);
  const bool stopped = may_end && sequence.text && sequence.text->cut_at_stop();
  if (!may_end && sequence.text) sequence.text->ignore_stops();
  if (sequence.request->on_text) {
    const std::string piece = sequence.text->take_piece();
    if (!piece.empty()) sequence.request->on_text(sequence.sample_index, piece);
  }
  if (is_eos && may_end) return StopReason::kEndOfText;
  if (stopped || (may_end && contains(params.stop_token_ids, token.id))) return StopReason::kStopToken;
  if (length >= params.max_tokens || sequence.num_tokens() >= options_.max_model_len) return StopReason::kLength;
  return std::nullopt;
}

void Generator::finish(SequencePtr sequence, StopReason reason) {
  std::string text;
  if (sequence->text) {
    const std::string rest = sequence->text->finish();
    if (sequence->request->on_text && !rest.empty()) sequence->request->on_text(sequence->sample_index, rest);
    text = sequence->text->text();
  }
  auto trajectory = std::make_shared<Trajectory>();
  trajectory->prompt = sequence->request->prompt;
  trajectory->sample_index = sequence->sample_index;
  trajectory->policy_version = sequence->request->policy_version;
  trajectory->temperature = sequence->request->params.effective_temperature();
  const auto response = sequence->response();
  trajectory->response_ids.assign(response.begin(), response.end());
  trajectory->rollout_logprobs = std::move(sequence->logprobs);
  trajectory->stop_reason = reason;
  trajectory->mean_entropy = sequence->entropy_sum / static_cast<double>(response.size());
  stats_.num_response_tokens += static_cast<int64_t>(response.size());
  on_finish_(std::move(trajectory), text);
}

GeneratorStats& GeneratorStats::operator+=(const GeneratorStats& other) {
  num_passes += other.num_passes, num_prompt_tokens += other.num_prompt_tokens;
  num_response_tokens += other.num_response_tokens, num_computed_tokens += other.num_computed_tokens;
  num_cached_tokens += other.num_cached_tokens, num_preempted += other.num_preempted;
  return *this;
}

GeneratorStats Generator::stats() const {
  GeneratorStats stats = stats_;
  stats.num_cached_tokens = scheduler_.num_cached_tokens();
  stats.num_preempted = scheduler_.num_preempted();
  return stats;
}

int64_t plan_kv_blocks(const ModelConfig& config, int64_t budget_bytes, int64_t max_model_len, int64_t wanted,
                       int64_t value_bytes) {
  const int64_t bytes = config.num_hidden_layers * 2 * config.kv_size() * kKvBlock * value_bytes;
  const int64_t least = (max_model_len + kKvBlock - 1) / kKvBlock, affordable = budget_bytes / bytes;
  if (affordable < least)
    throw ConfigError(
        "the key-value cache of " + std::to_string(budget_bytes >> 20) + " MiB holds " +
        std::to_string(affordable * kKvBlock) + " tokens, one sequence may have " + std::to_string(max_model_len) +
        "; set actor_rollout_ref.rollout.kv_cache_memory_mb (on a GPU gpu_memory_utilization) to at least " +
        std::to_string((least * bytes >> 20) + 1));
  return std::clamp(wanted, least, affordable);
}

}  // namespace tandem
