#pragma once

#include <sstream>
#include <stdexcept>

namespace gravac {

// What the library throws: one line that says who found what and what was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with the parts joined together unless `condition` holds. The
// message is built only on failure.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (condition) [[likely]]
    return;
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

}  // namespace gravac
