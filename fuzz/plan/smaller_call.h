#pragma once

#include <string_view>
#include <vector>

#include "fuzz/plan/call_kinds.h"

namespace samestate {

/// Reduces an ordinary call until it is affordable.
class SmallerCall {
 public:
  SmallerCall(const KernelRow& kernel, const CallKind& kind, const Dice& dice)
      : kernel_(kernel), kind_(kind), dice_(dice) {}

  /// Halves what is not kept until the call takes at most `seconds`, then what is kept. The part of a call
  /// that keeps the values of the model and the program is drawn: all sizes of the layer; those of its heads
  /// without the widths outside of them, whose maps cost the most; tokens and widths of a few heads; or a
  /// random half. Widths stay at least one tile as long as that suffices. With `layer` nothing is drawn, and
  /// all sizes are kept as long as possible; `smaller` is set if a size of the model was reduced. Returns
  /// false if nothing is left to reduce.
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
