// The program's side of Ray, behind ray_abi.h.
#include <dlfcn.h>

#include <cstring>

#include "rank_actor.h"
#include "ray_abi.h"

struct tandem_ray_group {
  ray::PlacementGroup places;
  std::vector<ray::ActorHandle<RankActor>> actors;
};

namespace {

enum Result { kDone = 0, kGone = 1, kNoAnswer = 2 };

constexpr int kCallTimeoutMs = 60'000;  // a worker's start, its actor's included
constexpr int kEndTimeoutMs = 5'000;    // beyond the grace

// Ray puts binary bytes before the words.
std::string readable(const std::string& text) {
  std::string words;
  for (const char c : text)
    if (c >= 32 && c < 127) words += c;
  return words;
}

template <class Fn>
int guarded(tandem_ray_sink error, void* context, const Fn& fn) noexcept {
  const auto say = [&](const std::string& text) { error(context, text.data(), text.size()); };
  try {
    return fn();
  } catch (const ray::internal::RayTimeoutException& e) {
    return say(readable(e.msg_)), kNoAnswer;
  } catch (const ray::internal::RayException& e) {
    return say(readable(e.msg_)), kGone;
  } catch (const std::exception& e) {
    return say(e.what()), kGone;
  } catch (...) {
    return say("unknown exception"), kGone;
  }
}

std::string opened(const Bytes& bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const size_t size = std::strlen(kMark);
  if (text.compare(0, size, kErrorMark) == 0) throw std::runtime_error(text.substr(size));
  if (text.compare(0, size, kMark) != 0) throw std::runtime_error("its actor was lost");
  return text.substr(size);
}

std::string this_library() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&tandem_ray_get_api), &info) != 0 ? info.dli_fname : "";
}

int connect(const char* address, tandem_ray_sink error, void* context) {
  return guarded(error, context, [&]() -> int {
    ray::RayConfig config;
    config.address = address;
    config.ray_namespace = "tandem";
    config.code_search_path = {this_library()};
    ray::Init(config);
    return kDone;
  });
}

void end(tandem_ray_group* group, int grace_ms) noexcept {
  std::vector<ray::ObjectRef<Bytes>> ended;
  tandem_ray_sink ignore = [](void*, const char*, size_t) {};
  guarded(ignore, nullptr, [&]() -> int {
    for (auto& actor : group->actors) ended.push_back(actor.Task(&RankActor::End).Remote(int64_t{grace_ms}));
    return kDone;
  });
  for (auto& reply : ended)
    guarded(ignore, nullptr, [&]() -> int { return reply.Get(grace_ms + kEndTimeoutMs), kDone; });
  for (auto& actor : group->actors) guarded(ignore, nullptr, [&]() -> int { return actor.Kill(), kDone; });
  guarded(ignore, nullptr, [&]() -> int { return ray::RemovePlacementGroup(group->places.GetID()), kDone; });
  delete group;
}

int start(const char* const* specs, int count, double cpus, long heartbeat_ms, int timeout_ms, tandem_ray_group** out,
          tandem_ray_sink error, void* context) {
  auto* group = new tandem_ray_group;
  const int result = guarded(error, context, [&]() -> int {
    ray::PlacementGroupCreationOptions options;
    options.bundles.assign(static_cast<size_t>(count), {{"CPU", cpus}});
    options.strategy = ray::PlacementStrategy::PACK;
    group->places = ray::CreatePlacementGroup(options);
    if (!group->places.Wait((timeout_ms + 999) / 1000))
      throw std::runtime_error("Ray has no place for " + std::to_string(count) + " workers of " + std::to_string(cpus) +
                               " CPU each within " + std::to_string(timeout_ms) +
                               " ms: start it with more (ray start --num-cpus), or take fewer ranks");
    std::vector<ray::ObjectRef<Bytes>> started;
    for (int i = 0; i < count; ++i) {
      auto creator = ray::Actor(RankActor::Create);
      creator.SetResource("CPU", cpus).SetMaxRestarts(0).SetPlacementGroup(group->places, i);
      group->actors.push_back(creator.Remote());
      started.push_back(
          group->actors.back().Task(&RankActor::Start).Remote(std::string(specs[i]), int64_t{heartbeat_ms}));
    }
    for (auto& reply : started) opened(*reply.Get(kCallTimeoutMs));
    return kDone;
  });
  if (result == kDone) {
    *out = group;
  } else {
    end(group, 0);
  }
  return result;
}

int status(tandem_ray_group* group, int worker, int timeout_ms, tandem_ray_sink out, void* out_context,
           tandem_ray_sink error, void* context) {
  return guarded(error, context, [&]() -> int {
    auto reply = group->actors[static_cast<size_t>(worker)].Task(&RankActor::Status).Remote();
    const std::string text = opened(*reply.Get(timeout_ms));
    out(out_context, text.data(), text.size());
    return kDone;
  });
}

void disconnect() {
  guarded([](void*, const char*, size_t) {}, nullptr, []() -> int { return ray::Shutdown(), kDone; });
}

const tandem_ray_api kApi{TANDEM_RAY_ABI, connect, start, status, end, disconnect};

}  // namespace

extern "C" const tandem_ray_api* tandem_ray_get_api() { return &kApi; }
