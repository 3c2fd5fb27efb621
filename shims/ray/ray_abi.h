/* The line between the program and libtandem_ray.so, which is built with Ray's old std::string ABI: no C++ type, no
   exception and no allocator crosses it. All calls from one thread. Texts of errors go to `error`, results to `out`. */
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TANDEM_RAY_ABI 1
/* Called at most once a call; the receiver copies. */
typedef void (*tandem_ray_sink)(void* context, const char* data, size_t size);
typedef struct tandem_ray_group tandem_ray_group;

typedef struct tandem_ray_api {
  int version;
  /* 0: done; else `error` says why. */
  int (*connect)(const char* address, tandem_ray_sink error, void* context);
  /* One actor a worker, each in a bundle of its own that has `cpus`; `specs` are JSON texts of control/worker_json.h.
     Fails where there is no room within `timeout_ms`. */
  int (*start)(const char* const* specs, int count, double cpus, long heartbeat_ms, int timeout_ms,
               tandem_ray_group** group, tandem_ray_sink error, void* context);
  /* The worker's state as JSON text of one worker. 1: its actor is gone; 2: no answer within `timeout_ms`. */
  int (*status)(tandem_ray_group* group, int worker, int timeout_ms, tandem_ray_sink out, void* out_context,
                tandem_ray_sink error, void* context);
  /* Ends all workers, which have `grace_ms` to end by themselves, and gives their places back. */
  void (*end)(tandem_ray_group* group, int grace_ms);
  void (*disconnect)(void);
} tandem_ray_api;

const tandem_ray_api* tandem_ray_get_api(void);

#ifdef __cplusplus
}
#endif
