#pragma once

#include <string_view>
#include <vector>

namespace gravac {

// A measured rate: what one step at a factor is worth, in dense steps, and by how much that differed between
// models.
struct RatePoint {
  double factor = 1, rate = 1, spread = 0;
};

// What compressed steps are worth, in dense steps, by their factor: the law of a family of compressors, under
// an optimizer. Gains cannot tell, because those of different families mean different things: Top-k at 100x
// and PowerSGD of rank 4 both keep 8 % of the energy, and a step of one is worth half as much as a step of
// the other.
class Law {
 public:
  // Gain ^ exponent. It is what Top-k with error feedback follows under an SGD that keeps its momentum, and
  // what is assumed where nothing was measured.
  explicit Law(double exponent = 1.0 / 3) : exponent_(exponent) {}
  // Measured points, ascending by factor. Between two of them, and between dense (1, 1) and the first, the
  // rate is interpolated along the logarithm of the factor; beyond the last it falls as the factor rises.
  explicit Law(std::vector<RatePoint> points);

  bool by_gain() const { return points_.empty(); }
  double exponent() const { return exponent_; }
  // `gain` is the error-fed one; only laws that go by it read it.
  double rate(double factor, double gain) const { return at(factor, gain).rate; }
  // The lower end of what was measured: what a step is worth on models that compression harms most.
  double least_rate(double factor, double gain) const;

 private:
  RatePoint at(double factor, double gain) const;

  double exponent_ = 0;
  std::vector<RatePoint> points_;
};

// A line of the table of measured rates, rates.def.
struct MeasuredRate {
  std::string_view family;  // of compressors: selector, quantiser, low-rank, low-rank-int4, half
  std::string_view
      hand_over;  // of SGD's momentum: momentum (less of it is used), as-is, memory (the engine has it), any
  std::string_view optimizer;  // sgd, adam
  double setting = 1;          // the factor; of low rank the rank
  double rate = 1;
  double spread = 0;  // how far below it the lowest rate of a task is
};

// All measured rates of a family, ascending by setting. Empty if nothing was measured.
std::vector<MeasuredRate> measured_rates(std::string_view family, std::string_view hand_over,
                                         std::string_view optimizer);

}  // namespace gravac
