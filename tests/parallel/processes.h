// Forked processes as ranks, for tests whose program has started no threads before.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <vector>

#include "parallel/communicator_gloo.h"

namespace tandem {

// Runs fn(rank, communicator) in `size` processes; returns their exit statuses: 0 where fn returned, 1 where it threw,
// 128 + n where signal n killed it.
inline std::vector<int> run_processes(int size, Timeout timeout, const std::function<void(int, Communicator&)>& fn) {
  // The port comes from rank 0 by a pipe, since only it may hold the server.
  int port_pipe[2];
  EXPECT_EQ(pipe(port_pipe), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    int status = 0;
    try {
      uint16_t port = 0;
      if (rank > 0 && read(port_pipe[0], &port, sizeof port) != sizeof port) throw IoError("no port");
      const Rendezvous place =
          rank == 0 ? Rendezvous::serve("127.0.0.1", 0, timeout) : Rendezvous::join("127.0.0.1", port, timeout);
      port = place.port();
      for (int peer = 1; rank == 0 && peer < size; ++peer) EXPECT_EQ(write(port_pipe[1], &port, sizeof port), 2);
      const auto group = place.communicator(rank, size);
      fn(rank, *group);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      status = 1;
    }
    _exit(::testing::Test::HasFailure() ? 2 : status);
  }
  std::vector<int> statuses;
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  close(port_pipe[0]);
  close(port_pipe[1]);
  return statuses;
}

}  // namespace tandem
