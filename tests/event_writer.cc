// Writes the event files that tests/tensorboard reads back: one of a run that was killed after step 5,
// and one of the run that resumed it at step 3. Usage: event_writer FOLDER
#include <cmath>

#include "train/events.h"

int main(int, char** arguments) {
  using gravac::train::EventFile;
  const auto write = [](EventFile& events, int begin, int end, double offset) {
    for (int step = begin; step < end; ++step) {
      events.scalar("loss", offset + 1.0 / (step + 1), step);
      events.scalar("train/gain", -step * 1e-3, step);
    }
  };
  {
    EventFile killed(arguments[1]);
    write(killed, 0, 6, 100);
  }
  EventFile resumed(arguments[1]);
  resumed.resume(3);
  write(resumed, 3, 2000, 200);
  resumed.scalar("odd \"tag\" \xc3\xa9", NAN, std::int64_t{1} << 40);
}
