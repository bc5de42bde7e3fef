#include "gravac/comm/link_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gravac/util/require.h"

namespace gravac {

void LinkModel::learn(const Volume& volume, double seconds) {
  if (!(volume.rounds > 0) || !(seconds >= 0) || !std::isfinite(seconds)) return;
  // A sample counts half after 13 more: long enough to average noise out, short enough to follow a link whose
  // speed changes.
  constexpr double kMemory = 0.95;
  // The weight makes it a fit of relative errors. Absolute errors of large exchanges would drown the small
  // exchanges, which are the ones that show the latency. 1 us is the shortest time taken seriously.
  const double w = 1 / std::max(seconds * seconds, 1e-12);
  // By the same weight, quick exchanges of the past would outvote slow ones for hundreds of steps after the
  // link has become slower. So they then count as if they had been as slow.
  const double ratio = this->seconds(volume) / seconds;
  const double memory = kMemory * (became_slower(volume, seconds) ? ratio * ratio : 1);
  for (double* sum : {&rr_, &rb_, &bb_, &rt_, &bt_}) *sum *= memory;
  rr_ += w * volume.rounds * volume.rounds;
  rb_ += w * volume.rounds * volume.bytes;
  bb_ += w * volume.bytes * volume.bytes;
  rt_ += w * volume.rounds * seconds;
  bt_ += w * volume.bytes * seconds;
  solve();
}

// Whether this is the third exchange in a row that took twice as long as predicted. One or two may be chance:
// a busy processor. Exchanges with far fewer bytes say nothing about the rate of the link, so they are passed
// over.
bool LinkModel::became_slower(const Volume& volume, double seconds) {
  constexpr double kFarLonger = 2, kInARow = 3, kFewer = 0.5;
  if (volume.bytes < kFewer * slow_bytes_) return false;
  const bool slow = seconds > kFarLonger * this->seconds(volume);
  slow_ = slow ? std::min(slow_ + 1, kInARow) : 0;
  slow_bytes_ = slow ? volume.bytes : 0;
  return slow_ == kInARow;
}

// Least squares for seconds = alpha rounds + beta bytes, neither below 0.
void LinkModel::solve() {
  // Near 0 if all samples have about the same bytes per round: then only one unknown can be determined, and
  // dividing by the determinant would amplify noise.
  const double determinant = rr_ * bb_ - rb_ * rb_;
  if (determinant > 1e-6 * rr_ * bb_) {
    alpha_ = (rt_ * bb_ - bt_ * rb_) / determinant;
    beta_ = (bt_ * rr_ - rt_ * rb_) / determinant;
    if (alpha_ >= 0 && beta_ >= 0) return;
  }
  // Only one unknown can be determined, or one came out negative, which noise can do but no network. Set one
  // to 0 and fit the other alone: the one that explains more of the times (leaves the smaller error).
  const double by_rounds = rt_ / rr_, by_bytes = bb_ > 0 ? bt_ / bb_ : 0;
  const bool bytes_explain = bb_ > 0 && bt_ * bt_ / bb_ >= rt_ * rt_ / rr_;
  alpha_ = bytes_explain ? 0 : by_rounds;
  beta_ = bytes_explain ? by_bytes : 0;
}

// Calls visit(name, number) for every number of the state.
template <class Self, class Visit>
void LinkModel::each_number(Self& self, const Visit& visit) {
  visit("rounds rounds", self.rr_);
  visit("rounds bytes", self.rb_);
  visit("bytes bytes", self.bb_);
  visit("rounds seconds", self.rt_);
  visit("bytes seconds", self.bt_);
  visit("alpha", self.alpha_);
  visit("beta", self.beta_);
  visit("slow", self.slow_);
  visit("slow bytes", self.slow_bytes_);
}

NamedNumbers LinkModel::save() const {
  NamedNumbers state;
  each_number(*this, [&](const char* name, double number) { state.push_back({name, {number}}); });
  return state;
}

void LinkModel::load(const NamedNumbers& state) {
  const NumberReader reader("link model", state);
  LinkModel loaded;
  each_number(loaded, [&](const char* name, double& number) {
    number = reader.number(name, 0, std::numeric_limits<double>::max());
  });
  *this = loaded;
}

}  // namespace gravac
