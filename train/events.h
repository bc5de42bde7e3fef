#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "train/file.h"

namespace gravac::train {

double seconds_since_1970();

// Scalars over steps in the format that TensorBoard reads. Opening throws Error; after that, a
// broken disk or pipe never does: writing stops, and broken() says why.
class EventFile {
 public:
  // Makes FOLDER, and in it events.out.tfevents.TIME.HOST.
  explicit EventFile(const std::string& folder, std::function<double()> wall_time = seconds_since_1970);
  ~EventFile() { flush(); }
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // After resuming at `step`: TensorBoard forgets what earlier files in the folder say of it and later steps.
  void resume(std::int64_t step);
  // Kept in memory until there are some pages of them, or until flush().
  void scalar(std::string_view tag, double value, std::int64_t step);
  void flush();
  // Why writing stopped, told once and empty otherwise: for a warning.
  std::string broken() { return sink_.broken(); }

  const std::string& path() const { return path_; }

 private:
  void add(const std::string& event);

  std::function<double()> wall_time_;
  std::string path_;
  Sink sink_;
  std::string pending_;
};

// The CRC-32C (Castagnoli) of `bytes`, by which the format guards its records.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace gravac::train
