#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "gravac/util/require.h"
#include "train/data_sets.h"
#include "train/files.h"

namespace gravac::train {

namespace {

// Calls use(word) for every word of `text`, and use("<eos>") at the end of each line.
template <class F>
void for_each_word(std::string_view text, F use) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
      const std::string_view word = line.substr(at, line.find_first_of(" \t\r", at) - at);
      use(word);
      at += word.size();
    }
    use("<eos>");
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
}

std::string_view as_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::uint8_t> read_text_file(const std::string& path) {
  std::vector<std::uint8_t> bytes = read_file(path);
  require(!bytes.empty(), "data: ", path, ": expected text, got an empty file");
  return bytes;
}

}  // namespace

// Words are what is between blanks; the end of a line is a word as well, <eos>.
TokenSet read_words(const DataOptions& options) {
  const std::string& dir = options.dir;
  const auto trained = read_text_file(find_file(dir, {"ptb.train.txt", "train.txt"}));
  const auto tested =
      read_text_file(find_file(dir, {"ptb.valid.txt", "valid.txt", "ptb.test.txt", "test.txt"}));
  TokenSet set;
  std::unordered_map<std::string_view, std::int32_t> known;  // keys point into the text of `trained`
  const auto number = [&](std::string_view word) {
    return known.emplace(word, static_cast<std::int32_t>(known.size())).first->second;
  };
  for_each_word(as_text(trained), [&](std::string_view word) { set.train.push_back(number(word)); });
  const std::int32_t unknown = number("<unk>");
  for_each_word(as_text(tested), [&](std::string_view word) {
    const auto found = known.find(word);
    set.test.push_back(found != known.end() ? found->second : unknown);
  });
  set.words = static_cast<std::int64_t>(known.size());
  return set;
}

// The bytes of a file, or of input.txt in a folder; the last tenth is to test on.
TokenSet read_text(const DataOptions& options) {
  const std::string& path = options.dir;
  const bool folder = std::filesystem::is_directory(path);
  const std::vector<std::uint8_t> bytes = read_text_file(folder ? find_file(path, {"input.txt"}) : path);
  std::array<std::int32_t, 256> numbers{};  // token of each byte value; values that do not occur have none
  for (const std::uint8_t byte : bytes) numbers[byte] = 1;
  TokenSet set;
  for (std::int32_t& number : numbers)
    if (number != 0) number = static_cast<std::int32_t>(set.words++);
  const std::size_t trained = bytes.size() - bytes.size() / 10;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    (i < trained ? set.train : set.test).push_back(numbers[bytes[i]]);
  return set;
}

}  // namespace gravac::train
