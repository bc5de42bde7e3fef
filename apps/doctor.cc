#include "apps/doctor.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/trainer.h"
#include "gravac/util/kernels.h"
#include "train/launch.h"

#ifdef GRAVAC_GLOO
constexpr bool kGloo = true;
#else
constexpr bool kGloo = false;
#endif
#ifdef GRAVAC_MPI
constexpr bool kMpi = true;
#else
constexpr bool kMpi = false;
#endif

namespace gravac::apps {
namespace {

namespace fs = std::filesystem;

struct Problem {
  bool stops_training;  // false: training works, but is slow or limited
  std::string text;
};

struct Findings {
  unsigned cores = std::thread::hardware_concurrency();
  unsigned cores_allowed = train::share_of_cores({});
  double memory_gigabytes = 0, memory_free_gigabytes = 0;
  std::string mpirun;  // empty: not found
  std::optional<TorchInfo> torch;
  std::vector<std::pair<std::string, std::string>> variables;  // that limit the number of threads
  std::string temporary_folder;
  bool temporary_folder_works = false, loopback_works = false;
  std::vector<Problem> problems;
};

// A value of /proc/meminfo, which has them in kilobytes of 1024 bytes.
double meminfo_gigabytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::strtod(line.c_str() + key.size() + 1, nullptr) * 1024e-9;
  }
  return 0;
}

// The path of a program in PATH; empty if there is none.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Whether a file can be created and written. Permissions alone do not tell: the disk may be full.
bool can_write_in(const fs::path& folder) {
  std::string name = (folder / "gravac-XXXXXX").string();
  const int file = mkstemp(name.data());
  if (file < 0) return false;
  const bool written = write(file, "x", 1) == 1;
  close(file);
  unlink(name.c_str());
  return written;
}

// Whether this machine can connect to itself over TCP, as workers on one machine do.
bool loopback() {
  const int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const bool works = server >= 0 && client >= 0 && bind(server, plain, length) == 0 &&
                     listen(server, 1) == 0 && getsockname(server, plain, &length) == 0 &&
                     connect(client, plain, length) == 0;
  if (server >= 0) close(server);
  if (client >= 0) close(client);
  return works;
}

// Adds the problems that follow from the other findings.
void judge(Findings& found) {
  const auto stops = [&](bool wrong, std::string text) {
    if (wrong) found.problems.push_back({true, std::move(text)});
  };
  const auto slows = [&](bool wrong, std::string text) {
    if (wrong) found.problems.push_back({false, std::move(text)});
  };
  stops(!found.torch, "no torch in this build: install libtorch-dev and build again");
  stops(!kGloo && !kMpi, "no backend in this build: install libgloo-dev or libopenmpi-dev and build again");
  stops(!found.temporary_folder_works,
        "cannot write to " + found.temporary_folder + ": set TMPDIR to a folder that can be written to");
  stops(!found.loopback_works, "no connection to 127.0.0.1: bring the interface lo up (ip link set lo up)");
  slows(found.torch && found.torch->blas == "reference",
        "torch runs on the reference BLAS, which is slow: install libopenblas0-pthread");
  slows(kMpi && found.mpirun.empty(), "mpirun not found: install openmpi-bin to use --backend mpi");
  // More threads than cores make OpenMP's threads wait for each other.
  for (const auto& [name, value] : found.variables) {
    slows(std::strtoul(value.c_str(), nullptr, 10) > found.cores_allowed,
          name + "=" + value + " is more than the " + std::to_string(found.cores_allowed) +
              " cores this process may use: unset it");
  }
  slows(found.memory_free_gigabytes < 1, "less than 1 GB of memory is free: use a small model and batch");
}

Findings examine() {
  Findings found;
  found.memory_gigabytes = meminfo_gigabytes("MemTotal");
  found.memory_free_gigabytes = meminfo_gigabytes("MemAvailable");
  found.mpirun = find_program("mpirun");
  if (has_trainer()) found.torch = trainer().torch_info();
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    if (const char* value = std::getenv(name)) found.variables.emplace_back(name, value);
  }
  const char* named = std::getenv("TMPDIR");
  found.temporary_folder = named && *named ? named : "/tmp";
  found.temporary_folder_works = can_write_in(found.temporary_folder);
  found.loopback_works = loopback();
  judge(found);
  return found;
}

void print_json(const Findings& found) {
  using Json = nlohmann::ordered_json;
  const auto tenths = [](double value) { return std::round(10 * value) / 10; };
  Json json = {
      {"version", GRAVAC_VERSION},
      {"simd", simd_name()},
      {"cores", found.cores},
      {"cores_allowed", found.cores_allowed},
      {"memory_gigabytes", tenths(found.memory_gigabytes)},
      {"memory_free_gigabytes", tenths(found.memory_free_gigabytes)},
      {"backends", {{"gloo", kGloo}, {"mpi", kMpi}}},
      {"mpirun", found.mpirun.empty() ? Json(nullptr) : Json(found.mpirun)},
      {"torch", nullptr},
      {"variables", Json::object()},
      {"temporary_folder", {{"path", found.temporary_folder}, {"writable", found.temporary_folder_works}}},
      {"loopback", found.loopback_works},
      {"problems", Json::array()}};
  if (found.torch) {
    json["torch"] = {
        {"version", found.torch->version}, {"blas", found.torch->blas}, {"parallel", found.torch->parallel}};
  }
  for (const auto& [name, value] : found.variables) json["variables"][name] = value;
  for (const Problem& problem : found.problems) {
    json["problems"].push_back({{"stops_training", problem.stops_training}, {"text", problem.text}});
  }
  std::printf("%s\n", json.dump().c_str());
}

void print_text(const Findings& found) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-12s %s\n", name, value.c_str());
  };
  char memory[64];
  std::snprintf(memory, sizeof(memory), "%.1f GB, %.1f free", found.memory_gigabytes,
                found.memory_free_gigabytes);
  line("gravac", GRAVAC_VERSION);
  line("SIMD", simd_name());
  line("cores", std::to_string(found.cores_allowed) + " of " + std::to_string(found.cores));
  line("memory", memory);
  line("backends", std::string(kGloo ? "gloo" : "") + (kGloo && kMpi ? ", " : "") + (kMpi ? "mpi" : "") +
                       (kGloo || kMpi ? "" : "none"));
  line("mpirun", found.mpirun.empty() ? "not found" : found.mpirun);
  line("torch", found.torch
                    ? found.torch->version + ", BLAS " + found.torch->blas + ", " + found.torch->parallel
                    : "not in this build");
  for (const auto& [name, value] : found.variables) line("variable", name + "=" + value);
  line("temporary", found.temporary_folder + (found.temporary_folder_works ? "" : ", not writable"));
  line("loopback", found.loopback_works ? "works" : "does not work");
  for (const Problem& problem : found.problems) {
    line(problem.stops_training ? "PROBLEM" : "note", problem.text);
  }
  if (found.problems.empty()) std::printf("\nNo problems found.\n");
}

}  // namespace

int show_doctor(bool json) {
  const Findings found = examine();
  json ? print_json(found) : print_text(found);
  for (const Problem& problem : found.problems) {
    if (problem.stops_training) return 1;
  }
  return 0;
}

}  // namespace gravac::apps
