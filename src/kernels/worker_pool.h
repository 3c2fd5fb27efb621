// The threads that share a kernel's pieces. Between two kernels of a pass they wait for microseconds, so they spin a
// while before they sleep: waking a sleeping thread takes longer than many kernels do. On a machine that runs other
// things as well spinning would cost those and us a core, so a thread that finds itself held back stops spinning for a
// time. Thread-safety: any thread may call; one that finds the pool in use does its work alone.
#pragma once

namespace tandem::kernels {

using Work = void (*)(void* context);

// Calls work(context) on this thread and on up to threads - 1 others that come free before it returns here. `work`
// takes pieces until none is left, and throws nothing. Inside such a call it runs on this thread alone.
void run_on_threads(int threads, Work work, void* context);

}  // namespace tandem::kernels
