#include "reference/overlap_windows.h"

#include "oracles/systems/rows.h"

namespace samestate {
namespace {

/// Both directions of the split: x divided into windows, and other parts of the same sizes added up.
struct Windows {
  /// The channels follow from the windows, so that every choice is valid (7.5).
  static OverlapWindows split_of(const Call& call) {
    return overlap_windows(call.at("N") * call.at("stride") + call.at("O"), call.at("N"), call.at("O"));
  }
  static Signature signature(const Call& call) {
    const OverlapWindows split = split_of(call);
    const Index windows = split.count * split.width;
    return {{{"x", Axis::tokens, {call.tokens, split.channels}, Content::activation},
             {"parts", Axis::tokens, {call.tokens, windows}, Content::activation}},
            {{"windows", Axis::tokens, {call.tokens, windows}},
             {"sum", Axis::tokens, {call.tokens, split.channels}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const OverlapWindows split = split_of(call);
    Matrix<Scalar> windows(call.tokens, split.count * split.width);
    std::vector<Matrix<Scalar>> parts;
    for (Index n = 0; n < split.count; ++n) {
      windows.middleCols(n * split.width, split.width) = split.slice(get(inputs, "x"), n);
      parts.push_back(get(inputs, "parts").middleCols(n * split.width, split.width));
    }
    return {{"windows", std::move(windows)}, {"sum", split.overlap_add(parts)}};
  }
};

}  // namespace

std::vector<Operator> overlap_windows_operators() {
  Operator row{"overlap_windows",
               "window n holds the channels [n s, n s + s + O); their sum at their places (DEND-25, P-12)",
               {{"N", 3, 1, 256, "windows"},
                {"stride", 8, 1, 512, "channels from one window to the next"},
                {"O", 4, 0, 512, "channels that neighbours share"}},
               {{"windows"}, {"channels"}},
               false,
               Windows::signature};
  evaluate_with<Windows>(row);
  row.token_wise = true;
  return {std::move(row)};
}

}  // namespace samestate
