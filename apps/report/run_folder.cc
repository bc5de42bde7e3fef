#include "apps/report/run_folder.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/report/run_files.h"
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

// "a/b/" and "a/b" are both called b; "." is called by the folder's real name.
std::string name_of(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  const std::string name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  return name.empty() ? path : name;
}

}  // namespace

std::string RunHistory::setting(const std::string& key, const std::string& otherwise) const {
  const auto found = settings.find(key);
  return found == settings.end() || found->second.empty() ? otherwise : found->second;
}

bool parse_step(std::string_view line, StepRecord& step) {
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

bool parse_evaluation(std::string_view line, EvaluationRecord& evaluation) {
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

bool LineReader::next(const std::function<bool(const std::string&)>& take) {
  auto file = open_run_file(path_, kMostLineFileBytes);
  if (!file) return true;
  // The last line is read again: if it is another one, the file was cut and has grown since.
  std::string line(last_.size(), '\0');
  file->seekg(static_cast<std::streamoff>(offset_ - last_.size()));
  file->read(line.data(), static_cast<std::streamsize>(line.size()));
  if (!file->good() || line != last_) return false;
  line.clear();
  std::vector<char> block(1 << 16);
  while (file->read(block.data(), static_cast<std::streamsize>(block.size())), file->gcount() > 0) {
    std::string_view rest(block.data(), static_cast<std::size_t>(file->gcount()));
    for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
      line.append(rest.substr(0, end));
      if (!take(line)) return false;
      last_ = std::exchange(line, "") + '\n';
      offset_ += last_.size();
    }
    line.append(rest);
    require(line.size() <= kMostLineBytes, "run: '", path_, "' has a line of more than ", kMostLineBytes,
            " bytes, at byte ", offset_);
  }
  return true;
}

RunFolder::RunFolder(std::string path)
    : path_(std::move(path)), steps_(path_ + "/steps.jsonl"), evaluations_(path_ + "/evals.jsonl") {
  require(fs::is_directory(path_), "report: no such folder '", path_, "'");
  require(open_run_file(path_ + "/steps.jsonl", kMostLineFileBytes).has_value(),
          "report: no steps.jsonl in '", path_,
          "'; give the folder of a run, as written by gravac train --out");
  run_.name = name_of(path_);
  update();
}

void RunFolder::update() {
  read_settings();
  read_steps();
  read_evaluations();
  read_summary();
}

// `key = value` lines without tables, as we write them ourselves; values lose their quotes.
void RunFolder::read_settings() {
  run_.settings.clear();
  auto file = open_run_file(path_ + "/config.toml", kMostSmallFileBytes);
  for (std::string line; file && std::getline(*file, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('#') || equals == line.npos) continue;
    std::string value = line.substr(equals + 3);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    run_.settings[line.substr(0, equals)] = value;
  }
}

bool RunFolder::add_step(const std::string& line) {
  StepRecord step;
  if (!parse_step(line, step)) return false;
  if (!run_.steps.empty() && step.step <= run_.steps.back().step) return false;
  if (std::isnan(step.seconds)) {  // the sum of the phases
    step.seconds = run_.steps.empty() ? 0 : run_.steps.back().seconds;
    for (const double seconds : step.phase_seconds) step.seconds += seconds;
  }
  run_.steps.push_back(step);
  return true;
}

// A resumed run cuts its files and goes on from an earlier step. Where the reader of lines does not see it,
// because the line that it knows stands where it was, the steps may still not follow on: read all of it
// again.
void RunFolder::read_steps() {
  if (steps_.next([&](const std::string& line) { return add_step(line); })) return;
  steps_.rewind();
  run_.steps.clear();
  run_.unreadable_steps = 0;
  steps_.next([&](const std::string& line) {
    if (!add_step(line)) ++run_.unreadable_steps;
    return true;
  });
}

// Evaluations are few: all of them are read every time.
void RunFolder::read_evaluations() {
  evaluations_.rewind();
  run_.evaluations.clear();
  run_.unreadable_evaluations = 0;
  evaluations_.next([&](const std::string& line) {
    EvaluationRecord evaluation;
    if (parse_evaluation(line, evaluation)) {
      run_.evaluations.push_back(evaluation);
    } else {
      ++run_.unreadable_evaluations;
    }
    return true;
  });
}

void RunFolder::read_summary() {
  run_.state = run_.settings.empty() || run_.setting("written-by") == "python" ? RunState::unknown
                                                                               : RunState::unfinished;
  run_.target.clear();
  auto file = open_run_file(path_ + "/summary.json", kMostSmallFileBytes);
  if (!file) return;
  const Json summary = Json::parse(*file, nullptr, false);
  if (!summary.is_object()) return;
  const auto finished = summary.find("finished");  // false if a signal stopped the run
  if (finished == summary.end() || *finished != false) run_.state = RunState::finished;
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
