#pragma once

#include <algorithm>
#include <cmath>

#include "optimized/cpu/operators/layer_parts.h"

/// Code shared by the layers' mutants of precision: one rounding, or sums, in 16 bits under a contract that
/// keeps 16 bits; they are correct under other contracts.
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

/// y = x w with the sums of every sixteen terms added up in `format`, as in a kernel that keeps its
/// accumulator in that format between tiles.
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

/// y = x w with products that are rounded before they are added.
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

/// y = silu of one token of a convolution, with its sum in `format`, or rounded to it before silu.
inline void other_convolution(const cpu::Block& taps, const cpu::Block& history, std::int64_t t, bool narrow,
                              Format format, float* y) {
  for (std::int64_t c = 0; c < taps.columns; ++c) {
    NarrowSum sum(narrow ? format : Format::fp32);
    for (std::int64_t j = 0; j < taps.rows; ++j) sum.add(taps.row(j)[c] * history.row(t + j)[c]);
    y[c] = cpu::layer::silu(rounded(sum.value(), format));
  }
}

/// The gated norm of a row, in place, with its squares summed in `format`, or the normalised row rounded
/// before weight and gate.
inline void other_gated_norm(float* x, const float* z, const float* weight, std::int64_t width, float epsilon,
                             bool narrow, Format format) {
  NarrowSum sum(narrow ? format : Format::fp32);
  for (std::int64_t c = 0; c < width; ++c) sum.add(x[c] * x[c]);
  const float factor = 1.0F / std::sqrt(sum.value() / static_cast<float>(width) + epsilon);
  for (std::int64_t c = 0; c < width; ++c) {
    const float y = x[c] * factor;
    x[c] = (narrow ? y : rounded(y, format)) * weight[c] * cpu::layer::silu(z[c]);
  }
}

/// Faults of one step of a Layer that names its steps like GatedDeltaNetLayer and dendritic::Sequence.
template <class Layer>
struct StrengthRounded : Layer {
  using Layer::Layer;
  [[nodiscard]] float strength(float b) const override { return rounded(Layer::strength(b), this->kept_); }
};
template <class Layer>
struct BiasAddedInSixteenBits : Layer {
  using Layer::Layer;
  [[nodiscard]] float log_decay(float a, float bias, float rate) const override {
    return Layer::log_decay(rounded(a + bias, this->kept_), 0.0F, rate);
  }
};
template <class Layer>
struct OutputTermsRounded : Layer {
  using Layer::Layer;
  void output(const cpu::Block& x, const cpu::Block& w, cpu::Block& y) const override {
    product_of_rounded_terms(x, w, this->kept_, y);
  }
};
template <class Layer>
struct OutputInSixteenBits : Layer {
  using Layer::Layer;
  void output(const cpu::Block& x, const cpu::Block& w, cpu::Block& y) const override {
    narrow_product(x, w, this->kept_, y);
  }
};

}  // namespace samestate::mutants
