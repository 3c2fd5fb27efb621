// trainer.journal.*, trainer.checkpoint.* and trainer.fault.*: what a run keeps against kills, full disks and lost
// machines (docs/reliability.md), and what it does when a worker is lost (docs/controller.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

struct JournalConfig {
  bool enable = true;
  std::string fsync = "step";
  double max_gb = 16;

  template <class V>
  void fields(V&& v) {
    v("enable", enable,
      "write finished samples to <run folder>/journal, so that a killed run draws none of them again");
    v("fsync", fsync,
      "when its records are forced onto the disk, against a power cut: after every sample or step, or never; a killed "
      "process loses none in any case",
      {"none", "step", "sample"});
    v("max_gb", max_gb, "size at which a checkpoint is saved out of turn, so that the journal can be cut");
  }
};

struct TrainerCheckpointConfig {
  bool async_save = true;
  double max_write_mb_per_s = 0;
  int64_t memory_freq = 100;
  int64_t local_freq = 1000;
  int64_t remote_freq = 5000;
  std::optional<std::string> remote_path;

  template <class V>
  void fields(V&& v) {
    v("async_save", async_save,
      "copy the state and go on; another thread writes the checkpoint. false, or too little memory: the step waits");
    v("max_write_mb_per_s", max_write_mb_per_s, "most that writing checkpoints may take of the disk; 0: no bound");
    v("memory_freq", memory_freq, "steps between copies of the whole state in memory; 0: none");
    v("local_freq", local_freq, "steps between checkpoints besides those of save_freq; 0: none");
    v("remote_freq", remote_freq, "steps between checkpoints that also go to remote_path; 0: none");
    v("remote_path", remote_path, "object storage for them, s3://BUCKET/PREFIX (or a folder); null: none");
  }
};

struct FaultConfig {
  double heartbeat_timeout = 30;
  int64_t max_restarts = 3;
  double window_minutes = 60;
  double replace_timeout = 20;
  int64_t min_ranks = 0;
  double grow_interval = 30;

  template <class V>
  void fields(V&& v) {
    v("heartbeat_timeout", heartbeat_timeout,
      "seconds without a sign of life after which a rank counts as hung and is replaced");
    v("max_restarts", max_restarts,
      "times that lost ranks are replaced within window_minutes before the run stops; 0: a lost rank ends the run");
    v("window_minutes", window_minutes, "how long a replacement counts");
    v("replace_timeout", replace_timeout,
      "seconds within which a lost rank must come back; after them the run goes on with fewer ranks");
    v("min_ranks", min_ranks,
      "ranks with which a run goes on at least; 0: half of them; trainer.n_gpus_per_node: never with fewer");
    v("grow_interval", grow_interval, "seconds between looks whether the missing ranks can come back");
  }
};

struct ResourcePoolsConfig {
  std::string critic = "actor", reference = "actor";

  template <class V>
  void fields(V&& v) {
    v("critic", critic, "where the critic works: in the actor's first rank, or in a process of its own",
      {"actor", "own"});
    v("reference", reference, "the same of the reference model", {"actor", "own"});
  }
};

struct RayConfig {
  bool autostart = false;
  std::optional<std::string> address;
  double cpus_per_rank = 1;

  template <class V>
  void fields(V&& v) {
    v("autostart", autostart, "start a Ray of this machine for the run, and end it with the run");
    v("address", address, "host:port of a running Ray (`ray start --head` prints it); null: RAY_ADDRESS");
    v("cpus_per_rank", cpus_per_rank, "of Ray's CPUs, what a rank's place takes");
  }
};

}  // namespace tandem
