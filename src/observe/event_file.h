// TensorBoard's event files, written without TensorFlow: TFRecord framing (length, masked CRC-32C of the length, data,
// masked CRC-32C of the data; tensorflow/core/lib/io/record_writer.cc) around the protobuf messages Event, Summary and
// SessionLog (tensorboard/compat/proto/{event,summary}.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "observe/append_file.h"
#include "observe/metrics.h"

namespace tandem {

uint32_t crc32c(std::string_view data);  // Castagnoli, as iSCSI (RFC 3720, appendix B.4)
std::string tfrecord(std::string_view data);

// One new file in `folder`, named as TensorBoard expects. Values are stored as float, the format's only scalar here.
// Not thread-safe. Errors are those of AppendFile.
class EventFile {
 public:
  explicit EventFile(const std::filesystem::path& folder);
  // Readers forget what other files of the folder hold of `first_step` and later.
  void start_session(int64_t first_step);
  void add_scalars(int64_t step, const Metrics& metrics);

 private:
  AppendFile file_;
};

}  // namespace tandem
