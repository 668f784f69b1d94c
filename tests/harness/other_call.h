#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "optimized/operator_kernel.h"

namespace samestate {

/// A call whose inputs may be changed before the correct kernel reads them, and its outputs and taps after
/// it.
class OtherCall {
 public:
  explicit OtherCall(const OperatorArguments& of) : call(of) {}

  /// Rows [first, first + rows) of every `period` rows of an input times `factor`; of all rows as standard.
  void scale(std::string_view input, float factor, std::int64_t first = 0, std::int64_t rows = 1,
             std::int64_t period = 1) {
    for (NamedTensor<const float>& x : call.inputs) {
      if (x.name != input) continue;
      std::vector<float>& copy = copies_.emplace_back(x.data, x.data + size_of(x.shape));
      const std::int64_t width = x.shape.back();
      for (std::int64_t i = 0; i < std::ssize(copy); ++i) {
        const std::int64_t row = i / width % period;
        if (row >= first && row < first + rows) copy[static_cast<std::size_t>(i)] *= factor;
      }
      x.data = copy.data();
    }
  }
  /// Returns everything that a call wrote under that name.
  [[nodiscard]] std::span<float> written(std::string_view name) const {
    const NamedTensor<float>* x = call.tap(name);
    return x == nullptr ? std::span<float>{}
                        : std::span<float>{x->data, static_cast<std::size_t>(size_of(x->shape))};
  }
  [[nodiscard]] std::int64_t at(std::string_view size) const { return call.parameter(size); }

  OperatorArguments call;

 private:
  static std::int64_t size_of(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return size;
  }
  std::deque<std::vector<float>> copies_;
};

}  // namespace samestate
