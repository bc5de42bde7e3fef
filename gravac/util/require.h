#pragma once

#include <sstream>
#include <stdexcept>

namespace gravac {

// What the library throws: one line that names the part of the library, what it expected and what it got,
// such as "wire: expected version 2, got 3".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error unless `condition` holds. The message is `parts`, one behind the other; it is put together
// only on failure, so a check costs a comparison. For arguments and input; assert() is for our own mistakes.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (condition) [[likely]]
    return;
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

}  // namespace gravac
