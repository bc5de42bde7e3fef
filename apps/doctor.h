#pragma once

namespace gravac::apps {

// Prints what this machine and build can do, and what is wrong, each with what to do.
// Returns 1 if something would stop training, else 0.
int show_doctor(bool json);

}  // namespace gravac::apps
