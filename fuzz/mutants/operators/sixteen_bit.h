#pragma once

#include "optimized/cpu/operators/tensor.h"

/// What layers' mutants of precision share: one rounding, and sums, of a contract that keeps 16 bit; right under others.
namespace samestate::mutants {

[[nodiscard]] inline float rounded(float x, Format format) {
  cpu::round_values(&x, &x, 1, format);
  return x;
}

/// A sum whose partial sums are numbers of `format`.
class NarrowSum {
 public:
  explicit NarrowSum(Format format, float begin = 0.0F) : format_(format), sum_(rounded(begin, format)) {}
  void add(float x) { sum_ = rounded(sum_ + x, format_); }
  [[nodiscard]] float value() const { return sum_; }

 private:
  Format format_;
  float sum_;
};

/// y = x w where the sums of every sixteen terms are added up in `format`, as a kernel does that keeps its accumulator there
/// between tiles.
inline void narrow_product(const cpu::Block& x, const cpu::Block& w, Format format, cpu::Block& y) {
  constexpr std::int64_t kTile = 16;
  y.resize(x.rows, w.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < w.columns; ++j) {
      NarrowSum sum(format);
      for (std::int64_t from = 0; from < w.rows; from += kTile) {
        float tile = 0.0F;
        for (std::int64_t k = from; k < std::min(from + kTile, w.rows); ++k)
          tile += x.row(i)[k] * w.row(k)[j];
        sum.add(tile);
      }
      y.row(i)[j] = sum.value();
    }
  }
}

/// y = x w of products that are rounded before they are added.
inline void product_of_rounded_terms(const cpu::Block& x, const cpu::Block& w, Format format, cpu::Block& y) {
  y.resize(x.rows, w.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < w.columns; ++j) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < w.rows; ++k) sum += rounded(x.row(i)[k] * w.row(k)[j], format);
      y.row(i)[j] = sum;
    }
  }
}

}  // namespace samestate::mutants
