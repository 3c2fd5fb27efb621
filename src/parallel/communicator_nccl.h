// GPUs as ranks, a process each: NCCL (nccl.h) between their memories, another communicator between what lies with the
// hosts. Made by the GPU's library, since the program links no CUDA.
#pragma once

#include "parallel/communicator.h"

namespace tandem {

// What libtandem_cuda.so has under the name below. Takes `host`, whose ranks each have a GPU of their own, over;
// `timeout` of exchanges between GPUs. Of the exchange's parts each is sent whither it lies: from one GPU's memory to
// another's, or from one host's to another's. Work that the calling thread gave to its GPU before comes before the
// transfer, and the transfer is through when exchange() returns. NCCL is joined at the first part that needs it, so
// that groups that move nothing between GPUs cost none of their memory.
using MakeDeviceCommunicator = Communicator* (*)(Communicator* host, int64_t timeout_ms);
inline constexpr const char* kMakeDeviceCommunicator = "tandem_device_communicator";

}  // namespace tandem
