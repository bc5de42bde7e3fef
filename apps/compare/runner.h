#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gravac::compare {

// A call of this program, and the file that gets what it prints.
struct Command {
  std::vector<std::string> arguments;  // without the program's name
  std::string log;
};

// What run_all() tells while it waits; commands are called by their numbers.
struct Observer {
  std::function<void(std::size_t)> began;
  std::function<void(std::size_t, int exit_code)> ended;
  std::function<void()> tick;  // about once a second
};

// Runs all commands, each in a process of its own, at most `jobs` at a time, and begins them in order.
// Environment variables that would change the options of `gravac train` or make it part of a larger job are
// kept from them.
//
// SIGINT, SIGTERM and SIGHUP are sent on to those that run, and no other is begun; of those that the signal
// ends, nothing is told. Returns that signal, or 0.
int run_all(const std::vector<Command>& commands, std::size_t jobs, const Observer& observer);

}  // namespace gravac::compare
