#pragma once

#include <string_view>
#include <vector>

#include "oracles/systems/operator.h"

/// Operators whose tensors hold H heads side by side: q, k [T, H dk], v [T, H dv].
namespace samestate {

/// q, k and v of a call; q and k have the content `keys`.
[[nodiscard]] inline std::vector<TensorSpec> head_tensors(const Call& call,
                                                          Content keys = Content::activation) {
  const Index H = call.at("H");
  return {{"q", Axis::tokens, {call.tokens, H * call.at("dk")}, keys},
          {"k", Axis::tokens, {call.tokens, H * call.at("dk")}, keys},
          {"v", Axis::tokens, {call.tokens, H * call.at("dv")}, Content::activation}};
}

/// The sizes of such a system, with at most `heads` heads.
[[nodiscard]] inline std::vector<Parameter> head_widths(Index heads) {
  return {{"H", 2, 1, heads, "heads"},
          {"dk", 32, 1, 512, "key width of a head"},
          {"dv", 32, 1, 512, "value width of a head"}};
}

/// Head h of a [T, H width] tensor.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> head(const Tensors<Scalar>& inputs, std::string_view name, Index h,
                                  Index width) {
  return get(inputs, name).middleCols(h * width, width);
}

}  // namespace samestate
