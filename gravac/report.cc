#include "gravac/report.h"

#include <cmath>
#include <cstdio>
#include <string_view>

namespace gravac {
namespace {

// 1 if nothing was sent, as with one rank.
double ratio(std::size_t a, std::size_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 1.0;
}

// Builds one JSON object without nesting. Keys and strings are our own, so nothing has to be escaped.
class Line {
 public:
  Line& add(std::string_view key, std::string_view value) { return raw(key, '"' + std::string(value) + '"'); }
  Line& add(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  Line& add(std::string_view key, std::uint64_t value) { return raw(key, std::to_string(value)); }
  Line& add(std::string_view key, int value) { return raw(key, std::to_string(value)); }
  Line& add(std::string_view key, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", value);       // as many digits as a float has, and not more
    return raw(key, std::isfinite(value) ? text : "null");  // JSON has no NaN and no infinity
  }
  std::string str() const { return text_ + "}"; }

 private:
  Line& raw(std::string_view key, const std::string& value) {
    text_ += (text_.size() > 1 ? ", \"" : "\"") + std::string(key) + "\": " + value;
    return *this;
  }
  std::string text_ = "{";
};

std::string_view name_of(Send send) {
  return send == Send::dense ? "dense" : send == Send::minimum ? "minimum" : "candidate";
}

}  // namespace

double StepReport::factor_entries() const {
  return ratio(entries, entries_sent);
}
double StepReport::factor_bytes() const {
  return ratio(dense_bytes, bytes_sent);
}

// Programs and notebooks read these keys. Adding one is safe; renaming or removing one breaks readers, and
// then "schema" must rise.
std::string to_json(const StepReport& r) {
  return Line()
      .add("schema", std::uint64_t{1})
      .add("step", r.step)
      .add("finite", r.finite)
      .add("bad_steps", r.bad_steps)
      .add("sent", name_of(r.sent))
      .add("exchange", to_string(r.route))
      .add("exchange_reason", r.whole.text())
      .add("factor", r.factor)
      .add("minimum", r.minimum)
      .add("candidate", r.candidate)
      .add("momentum_share", r.momentum.share)
      .add("momentum_most", r.momentum.most)
      .add("gain_error_fed_minimum", r.gain_error_fed[0])
      .add("gain_error_fed_candidate", r.gain_error_fed[1])
      .add("gain_gradient_minimum", r.gain_gradient[0])
      .add("gain_gradient_candidate", r.gain_gradient[1])
      .add("gain_released_minimum", r.gain_released[0])
      .add("gain_released_candidate", r.gain_released[1])
      .add("entered_energy", r.entered_energy)
      .add("dense_energy", r.dense_energy)
      .add("compute_seconds", r.compute_seconds)
      .add("compress_seconds", r.compress_seconds)
      .add("agree_seconds", r.agree_seconds)
      .add("exchange_seconds", r.exchange_seconds)
      .add("decode_seconds", r.decode_seconds)
      .add("entries", std::uint64_t{r.entries})
      .add("entries_sent", std::uint64_t{r.entries_sent})
      .add("bytes_sent", std::uint64_t{r.bytes_sent})
      .add("bytes_received", std::uint64_t{r.bytes_received})
      .add("dense_bytes", std::uint64_t{r.dense_bytes})
      .add("factor_entries", r.factor_entries())
      .add("factor_bytes", r.factor_bytes())
      .add("residual_norm", r.residual_norm)
      .add("samples_per_second", r.samples_per_second)
      .add("effective_samples_per_second", r.effective_samples_per_second)
      .add("effective_steps", r.effective_steps)
      .add("straggler", r.straggler)
      .add("straggler_seconds", r.straggler_seconds)
      .str();
}

}  // namespace gravac
