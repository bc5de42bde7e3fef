#pragma once

#include <string>

#include "gravac/util/require.h"

namespace gravac::apps {

// The command line asks for something that cannot be: the program prints the reason and exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// What `make` returns. Its Errors come from what the command line says, and become UsageErrors.
template <class Make>
auto from_command_line(const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace gravac::apps
