#pragma once

namespace gravac::apps {

// Prints what this machine and this build can do, and every problem found, with its remedy. Returns 1
// if a problem would stop training, or else 0.
int show_doctor(bool json);

}  // namespace gravac::apps
