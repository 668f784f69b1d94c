#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

/// A float whose sums are added up in the order that a kernel of ours may not have, for tests of what judges any order:
/// the terms of a sum are kept until its value is asked for.
namespace samestate {

enum class SumOrder {
  forwards,     ///< one after the other, products rounded
  fused,        ///< the same, products not rounded
  backwards,    ///< fused, from the last to the first
  pairwise,     ///< halves, and halves of these
  lanes,        ///< sixteen partial sums of every sixteenth term, then these in pairs, as the lanes of a warp
  blocks,       ///< of 32 terms, then these one after the other, as tiles do
  rounded_once  ///< in double
};

inline constexpr SumOrder kSumOrders[] = {
    SumOrder::forwards,  SumOrder::fused,  // NOLINT(modernize-avoid-c-arrays)
    SumOrder::backwards, SumOrder::pairwise, SumOrder::lanes, SumOrder::blocks, SumOrder::rounded_once};

class Ordered {
 public:
  /// Of this thread.
  [[nodiscard]] static SumOrder& order() {
    thread_local SumOrder now = SumOrder::forwards;
    return now;
  }

  Ordered() = default;
  Ordered(double x) : terms_{x} {}  // NOLINT: data and constants are numbers of fp32
  [[nodiscard]] double value() const {
    if (terms_.empty()) return 0.0;
    return terms_.size() == 1 ? static_cast<float>(terms_[0]) : sum();
  }

  friend Ordered operator-(Ordered x) {
    for (double& term : x.terms_) term = -term;
    return x;
  }
  friend Ordered operator+(Ordered x, const Ordered& y) { return x += y; }
  friend Ordered operator-(Ordered x, const Ordered& y) { return x += -y; }
  friend Ordered operator*(const Ordered& x, const Ordered& y) {
    const double product = x.value() * y.value();  // exact
    return order() == SumOrder::forwards ? static_cast<double>(static_cast<float>(product)) : product;
  }
  friend Ordered operator/(const Ordered& x, const Ordered& y) {
    return static_cast<double>(static_cast<float>(x.value()) / static_cast<float>(y.value()));
  }
  Ordered& operator+=(const Ordered& y) {
    terms_.insert(terms_.end(), y.terms_.begin(), y.terms_.end());
    return *this;
  }
  Ordered& operator-=(const Ordered& y) { return *this += -y; }
  Ordered& operator*=(const Ordered& y) { return *this = *this * y; }
  Ordered& operator/=(const Ordered& y) { return *this = *this / y; }
  friend bool operator<(const Ordered& x, const Ordered& y) { return x.value() < y.value(); }
  friend bool operator>(const Ordered& x, const Ordered& y) { return x.value() > y.value(); }
  friend bool operator<=(const Ordered& x, const Ordered& y) { return x.value() <= y.value(); }
  friend bool operator>=(const Ordered& x, const Ordered& y) { return x.value() >= y.value(); }
  friend bool operator==(const Ordered& x, const Ordered& y) { return x.value() == y.value(); }
  friend bool operator!=(const Ordered& x, const Ordered& y) { return x.value() != y.value(); }

 private:
  using Place = std::vector<double>::const_iterator;

  [[nodiscard]] static float forwards(Place from, Place to) {
    float sum = 0.0F;
    for (; from != to; ++from) sum = static_cast<float>(static_cast<double>(sum) + *from);
    return sum;
  }
  [[nodiscard]] static float pairwise(Place from, Place to) {
    if (to - from <= 1) return from == to ? 0.0F : static_cast<float>(*from);
    const Place middle = from + (to - from) / 2;
    return pairwise(from, middle) + pairwise(middle, to);
  }
  [[nodiscard]] double sum() const {
    std::vector<double> parts;
    switch (order()) {
      case SumOrder::forwards:
      case SumOrder::fused:
        return forwards(terms_.begin(), terms_.end());
      case SumOrder::backwards:
        parts.assign(terms_.rbegin(), terms_.rend());
        return forwards(parts.begin(), parts.end());
      case SumOrder::pairwise:
        return pairwise(terms_.begin(), terms_.end());
      case SumOrder::lanes:
        parts.resize(16);
        for (std::size_t i = 0; i < terms_.size(); ++i)
          parts[i % 16] = static_cast<double>(static_cast<float>(parts[i % 16] + terms_[i]));
        return pairwise(parts.begin(), parts.end());
      case SumOrder::blocks:
        for (Place from = terms_.begin(); from != terms_.end();) {
          const Place to = from + std::min<std::ptrdiff_t>(32, terms_.end() - from);
          parts.push_back(static_cast<double>(forwards(from, to)));
          from = to;
        }
        return forwards(parts.begin(), parts.end());
      case SumOrder::rounded_once:
        break;
    }
    double exact = 0.0;
    for (const double term : terms_) exact += term;
    return static_cast<float>(exact);
  }

  std::vector<double> terms_;
};

inline Ordered abs(const Ordered& x) { return std::abs(x.value()); }
inline Ordered sqrt(const Ordered& x) {
  return static_cast<double>(std::sqrt(static_cast<float>(x.value())));
}
inline Ordered exp(const Ordered& x) { return static_cast<double>(std::exp(static_cast<float>(x.value()))); }

}  // namespace samestate

template <>
struct Eigen::NumTraits<samestate::Ordered> : Eigen::GenericNumTraits<samestate::Ordered> {
  using Real = samestate::Ordered;
  using NonInteger = samestate::Ordered;
  using Nested = samestate::Ordered;
  using Literal = double;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 4,
    AddCost = 8,
    MulCost = 16
  };
};
