#include "apps/report/run_folder.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gravac/util/require.h"

namespace gravac::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The number under `key`; NaN if there is none, since JSON writes NaN as null.
double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}

double or_zero(double value) {
  return std::isfinite(value) ? value : 0;
}

// A JSON object whose "step" is a whole number; null otherwise.
Json object_of(std::string_view line) {
  Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return nullptr;
  const auto step = object.find("step");
  return step != object.end() && step->is_number_unsigned() ? object : Json(nullptr);
}

// The gain at the factor that was sent.
double gain_of(const Json& line, const std::string& definition, const std::string& sent) {
  if (sent == "dense") return 1;
  return number(line, ("gain_" + definition + "_" + sent).c_str());
}

// `key = value` lines without tables, as we write them ourselves; values lose their quotes.
std::map<std::string, std::string> settings_in(const std::string& path) {
  std::map<std::string, std::string> settings;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('#') || equals == line.npos) continue;
    std::string value = line.substr(equals + 3);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    settings[line.substr(0, equals)] = value;
  }
  return settings;
}

// "a/b/" and "a/b" are both called b; "." is called by the folder's real name.
std::string name_of(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  const std::string name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  return name.empty() ? path : name;
}

}  // namespace

std::string Run::setting(const std::string& key, const std::string& otherwise) const {
  const auto found = settings.find(key);
  return found == settings.end() || found->second.empty() ? otherwise : found->second;
}

bool parse_step(std::string_view line, Step& step) {
  const Json json = object_of(line);
  if (json.is_null()) return false;
  const auto sent_at = json.find("sent");
  const std::string sent =
      sent_at != json.end() && sent_at->is_string() ? sent_at->get<std::string>() : "dense";
  step.step = json["step"].get<std::uint64_t>();
  step.seconds = number(json, "train_seconds");
  step.loss = number(json, "loss");
  step.factor = number(json, "factor");
  if (!(step.factor >= 1)) step.factor = 1;
  step.gain_error_fed = gain_of(json, "error_fed", sent);
  step.gain_gradient = gain_of(json, "gradient", sent);
  // In dense steps too it is known only where the policy goes by it.
  step.gain_released =
      std::isnan(number(json, "gain_released_candidate")) ? std::nan("") : gain_of(json, "released", sent);
  step.entered_energy = number(json, "entered_energy");
  step.dense_energy = number(json, "dense_energy");
  step.residual_norm = number(json, "residual_norm");
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    step.phase_seconds[i] = or_zero(number(json, (std::string(kPhases[i]) + "_seconds").c_str()));
  }
  step.bytes_sent = or_zero(number(json, "bytes_sent"));
  step.dense_bytes = or_zero(number(json, "dense_bytes"));
  step.effective_samples_per_second = number(json, "effective_samples_per_second");
  return true;
}

bool parse_evaluation(std::string_view line, Evaluation& evaluation) {
  const Json json = object_of(line);
  if (json.is_null()) return false;
  evaluation.step = json["step"].get<std::uint64_t>();
  evaluation.seconds = number(json, "train_seconds");
  for (const char* metric : {"top1", "ppl", "loss"}) {
    evaluation.metric = metric;
    evaluation.value = number(json, metric);
    if (json.contains(metric)) break;
  }
  return true;
}

std::vector<std::string> LineReader::next(bool& restarted) {
  restarted = false;
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return {};
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::ifstream file(path_, std::ios::binary);
  const auto read = [&](std::uint64_t from) {
    std::string text(size - std::min(from, size), '\0');
    file.clear();
    file.seekg(static_cast<std::streamoff>(from));
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    return text;
  };
  // The last line is read again: if it is another one, the file was cut and has grown since.
  std::string added = read(offset_ - last_.size());
  if (!added.starts_with(last_)) {
    restarted = true;
    rewind();
    added = read(0);
  }
  std::vector<std::string> lines;
  std::size_t begin = last_.size();
  const std::size_t before = begin;
  for (std::size_t end; (end = added.find('\n', begin)) != added.npos; begin = end + 1) {
    lines.push_back(added.substr(begin, end - begin));
  }
  offset_ += begin - before;
  if (!lines.empty()) last_ = lines.back() + '\n';
  return lines;
}

RunFolder::RunFolder(std::string path)
    : path_(std::move(path)), steps_(path_ + "/steps.jsonl"), evaluations_(path_ + "/evals.jsonl") {
  require(fs::is_directory(path_), "report: no such folder '", path_, "'");
  require(fs::exists(path_ + "/steps.jsonl"), "report: no steps.jsonl in '", path_,
          "'; the folder of a run expected, as gravac train --out writes it");
  run_.name = name_of(path_);
  update();
}

void RunFolder::update() {
  run_.settings = settings_in(path_ + "/config.toml");
  read_steps(false);
  read_evaluations();
  read_summary();
}

// A resumed run cuts its files and goes on from an earlier step. Where the reader of lines does not see it,
// because the line that it knows stands where it was, the steps may still not follow on: read all of it
// again.
void RunFolder::read_steps(bool again) {
  bool restarted = false;
  const std::vector<std::string> lines = steps_.next(restarted);
  if (restarted || again) {
    run_.steps.clear();
    run_.unreadable_lines = 0;
  }
  for (const std::string& line : lines) {
    Step step;
    const bool good = parse_step(line, step);
    const bool follows = run_.steps.empty() || step.step > run_.steps.back().step;
    if (!again && !restarted && !(good && follows)) {
      steps_.rewind();
      return read_steps(true);
    }
    if (!good || !follows) {
      ++run_.unreadable_lines;
      continue;
    }
    double before = run_.steps.empty() ? 0 : run_.steps.back().seconds;
    if (std::isnan(step.seconds)) {  // the sum of the phases
      for (const double seconds : step.phase_seconds) before += seconds;
      step.seconds = before;
    }
    run_.steps.push_back(step);
  }
}

// Evaluations are few: all of them are read every time.
void RunFolder::read_evaluations() {
  evaluations_.rewind();
  run_.evaluations.clear();
  bool restarted = false;
  for (const std::string& line : evaluations_.next(restarted)) {
    Evaluation evaluation;
    if (parse_evaluation(line, evaluation)) run_.evaluations.push_back(evaluation);
  }
}

void RunFolder::read_summary() {
  run_.state =
      run_.settings.empty() || run_.setting("written-by") == "python" ? State::unknown : State::unfinished;
  run_.target.clear();
  std::ifstream file(path_ + "/summary.json");
  const Json summary = Json::parse(file, nullptr, false);
  if (!summary.is_object()) return;
  const auto finished = summary.find("finished");  // false if a signal stopped the run
  if (finished == summary.end() || *finished != false) run_.state = State::finished;
  const auto target = summary.find("target");
  if (target == summary.end() || !target->is_object()) return;
  char value[32];
  std::snprintf(value, sizeof(value), "%g", number(*target, "value"));
  const auto metric = target->find("metric");
  run_.target =
      (metric != target->end() && metric->is_string() ? metric->get<std::string>() : "?") + "=" + value;
  run_.target_seconds = number(*target, "reached_at_seconds");
}

}  // namespace gravac::report
