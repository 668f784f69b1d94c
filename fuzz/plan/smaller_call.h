#pragma once

#include <string_view>
#include <vector>

#include "fuzz/plan/call_kinds.h"

namespace samestate {

/// Makes an ordinary call smaller until it is affordable.
class SmallerCall {
 public:
  SmallerCall(const KernelRow& kernel, const CallKind& kind, const Dice& dice)
      : kernel_(kernel), kind_(kind), dice_(dice) {}

  /// Halves what is not kept until the call takes at most `seconds`, then what is kept. Which part of a call is kept as the model
  /// and the program have it is drawn: all sizes of the layer; those of its heads, without the widths outside of them, whose maps
  /// cost most; tokens and widths of a few heads; or a random half. Widths stay those of a tile as long as that suffices.
  /// `layer`: it is not drawn, all sizes are kept as long as they can be; `smaller`: set where a size of the model was lowered.
  /// False where nothing is left.
  [[nodiscard]] bool fit(Case& c, double seconds, bool layer, bool& smaller);

 private:
  static constexpr Index kTile = 16;

  [[nodiscard]] bool is_outer(std::string_view name) const;
  [[nodiscard]] bool lower(Case& c, double seconds, const std::vector<std::string_view>& names,
                           std::vector<std::string_view> kept, bool& smaller);
  [[nodiscard]] bool halve(Case& c, std::string_view name);
  void halve_tokens(Case& c) const;
  void halve_batch(Case& c) const;
  void halve_size(Case& c, std::string_view name) const;

  const KernelRow& kernel_;
  const CallKind& kind_;
  const Dice& dice_;
  Index least_ = kTile;
  bool outer_first_ = true;
};

}  // namespace samestate
