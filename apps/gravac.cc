// The program: parses flags and calls one of the apps. Exit 0 ok, 1 failed, 2 usage.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "apps/compressors.h"
#include "gravac/gradient.h"

int main(int argc, char** argv) {
  CLI::App app("GraVAC: adaptive gradient compression for distributed training", "gravac");
  app.set_version_flag("--version", "gravac " GRAVAC_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("gravac: ") + error.what() + " (see gravac --help)\n";
  });

  gravac::apps::CompressorsOptions compressors;
  CLI::App* show =
      app.add_subcommand("compressors", "Compress one gradient with every compressor and show the result");
  show->add_option("--entries", compressors.entries, "Length of the gradient")
      ->check(CLI::Range(std::size_t{1}, gravac::kMaxEntries))
      ->capture_default_str();
  show->add_option("--threads", compressors.threads, "Threads to use")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  show->add_option("--seed", compressors.seed, "Seed of the gradient and of the draws")
      ->capture_default_str();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    gravac::apps::show_compressors(compressors);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gravac: %s\n", error.what());
    return 1;
  }
}
