// gravac doctor --link and --serve: how fast is the link between two machines, and what does that mean for
// training?

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/doctor.h"
#include "apps/link_probe.h"
#include "apps/usage.h"
#include "simulate/advice.h"

namespace gravac::apps {
namespace {

void say(const std::string& line) {
  std::fprintf(stderr, "gravac: %s\n", line.c_str());
}

// What the options ask advice for; nothing if they name no model.
std::optional<simulate::Job> job_of(const LinkOptions& options) {
  const JobOptions& job = options.job;
  if (job.model.empty() && job.parameters.empty() && job.compute.empty()) return std::nullopt;
  return make_work(job).job;
}

// As --link of gravac train and gravac simulate takes it.
std::string option_text(const Link& link) {
  char text[64];
  const double mbit = link.bits_per_second / 1e6;
  std::snprintf(text, sizeof(text), mbit < 100 ? "%.3gmbit,%.0fus" : "%.0fmbit,%.0fus", mbit,
                1e6 * link.latency_seconds);
  return text;
}

void print_json(const LinkSpeed& speed, const std::optional<simulate::Advice>& advice) {
  using Json = nlohmann::ordered_json;
  const Link link = speed.link();
  Json json = {{"round_trip_seconds", speed.round_trip_seconds},
               {"send_bits_per_second", speed.send_bits_per_second},
               {"receive_bits_per_second", speed.receive_bits_per_second},
               {"gloo_bits_per_second",
                speed.gloo_bits_per_second ? Json(*speed.gloo_bits_per_second) : Json(nullptr)},
               {"bits_per_second", link.bits_per_second},
               {"latency_seconds", link.latency_seconds},
               {"link", option_text(link)}};
  if (advice) {
    json["sentence"] = advice->sentence;
    json["best"] = advice->best.setting.name();
    json["break_even_factor"] = advice->break_even ? Json(*advice->break_even) : Json(nullptr);
  }
  std::printf("%s\n", json.dump().c_str());
}

void print_text(const LinkSpeed& speed, const std::optional<simulate::Advice>& advice) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-12s %s\n", name, value.c_str());
  };
  line("round trip", simulate::time_text(speed.round_trip_seconds));
  line("sending", simulate::rate_text(speed.send_bits_per_second));
  line("receiving", simulate::rate_text(speed.receive_bits_per_second));
  line("Gloo", speed.gloo_bits_per_second
                   ? simulate::rate_text(*speed.gloo_bits_per_second) + " in an all-reduce of the two"
                   : "not in both builds");
  line("as option", "--link " + option_text(speed.link()));
  if (advice) std::printf("\n%s\n", advice->sentence.c_str());
}

}  // namespace

int show_link(const LinkOptions& options) {
  const Endpoint there = from_command_line([&] { return endpoint_from_string(options.there, "--link"); });
  const std::optional<simulate::Job> job = from_command_line([&] { return job_of(options); });
  const LinkSpeed speed = measure_link(there);
  std::optional<simulate::Advice> advice;
  if (job) advice = simulate::advise(*job, {.workers = options.workers, .link = speed.link()});
  options.json ? print_json(speed, advice) : print_text(speed, advice);
  return 0;
}

int serve_link(const std::string& at) {
  serve_probe(from_command_line([&] { return listening_endpoint_from_string(at); }), say);
  return 0;
}

}  // namespace gravac::apps
