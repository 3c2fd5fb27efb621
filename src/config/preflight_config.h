// trainer.preflight.*: what is checked before a run loads anything (docs/preflight.md).
#pragma once

#include <cstdint>

namespace tandem {

struct PreflightConfig {
  bool enable = true;
  double min_storage_gb_per_s = 0;
  int64_t storage_test_mb = 256;
  double max_clock_skew_s = 1.0;

  template <class V>
  void fields(V&& v) {
    v("enable", enable, "tandem train makes the quick checks of tandem preflight before it loads anything");
    v("min_storage_gb_per_s", min_storage_gb_per_s,
      "tandem preflight fails where the checkpoints' folder is written or read more slowly, in 1e9 bytes/s; 0: measure "
      "only");
    v("storage_test_mb", storage_test_mb, "size of the file that it measures with, in MiB; 0: measure nothing");
    v("max_clock_skew_s", max_clock_skew_s, "seconds by which this machine's clock may differ from the storage's");
  }
};

}  // namespace tandem
