#include "train/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>

namespace gravac::train {
namespace {

// The number after "step": in a line. We write these lines ourselves, so that finding the key is
// enough; parsing all of the JSON of a long run would take seconds.
std::optional<std::uint64_t> step_in(std::string_view line) {
  constexpr std::string_view kKey = "\"step\":";
  const std::size_t key = line.find(kKey);
  if (key == line.npos) return {};
  const std::size_t begin = line.find_first_not_of(' ', key + kKey.size());
  if (begin == line.npos) return {};
  std::uint64_t step = 0;
  const auto parsed = std::from_chars(line.data() + begin, line.data() + line.size(), step);
  return parsed.ec == std::errc() ? std::optional(step) : std::nullopt;
}

// The length of the complete lines before the first one of `step` or later. Lines without a step
// count as step 0.
std::size_t length_before(std::string_view lines, std::uint64_t step) {
  std::size_t begin = 0;
  for (std::size_t end; (end = lines.find('\n', begin)) != lines.npos; begin = end + 1) {
    if (step_in(lines.substr(begin, end - begin)).value_or(0) >= step) break;
  }
  return begin;
}

}  // namespace

void LineFile::cut(const std::string& path, std::uint64_t step) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const std::string lines = File(path, O_RDONLY).read();
  const auto length = static_cast<off_t>(length_before(lines, step));
  if (truncate(path.c_str(), length) != 0) fail("shorten", path);
}

}  // namespace gravac::train
