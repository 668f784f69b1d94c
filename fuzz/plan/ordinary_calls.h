#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plan/call_kinds.h"
#include "fuzz/plan/dice.h"
#include "harness/run/kernel_table.h"
#include "harness/systems/model_sizes.h"

namespace samestate {

/// A call as a program around a model makes it.
struct OrdinaryCall {
  Case c;
  std::string_view model;  ///< a model of the catalogue (fixtures/models.h)
  std::string_view kind;
  bool smaller = false;       ///< a size of the model was reduced to keep the call affordable
  std::string_view why = {};  ///< why there is no such case
};

/// OrdinaryCall::why if the system has no calls of that kind.
inline constexpr std::string_view kNoSuchCall = "the system has no such call";

/// The approximate seconds of one core that judging the case takes; infinite for impossible sizes.
[[nodiscard]] double seconds_of_call(const KernelRow& kernel, const Case& c);

/// Seconds of one core that judging an ordinary call may take. About one call in ten may take the longer
/// time, because only such calls combine several sizes of a model with a realistic number of tokens.
inline constexpr double kSecondsOfCall = 1.0;
inline constexpr double kSecondsOfDearCall = 4.0;

/// Draws ordinary calls of one kernel: model x kind of call x tokens x data x settings. The models and kinds
/// take turns, so that the first calls include each model and each kind; everything else is random. If a call
/// would take more than its share of kSecondsOfCall, some of its sizes, tokens or sequences are reduced. A
/// random part of them keeps the model's values, so that many calls together contain every combination of
/// them.
class OrdinaryCalls {
 public:
  explicit OrdinaryCalls(const KernelRow& kernel);

  /// The number of models that have a layer of the kernel's system.
  [[nodiscard]] Index models() const { return std::ssize(models_); }
  /// How many calls have to be drawn until each pair of a model and a kind has had its turn.
  [[nodiscard]] Index round() const;

  /// Model and kind of call number `index`, without a case.
  [[nodiscard]] OrdinaryCall turn(Index index) const;

  /// Call number `index`; `c` is an empty case if there is no such call: the system has none of that kind,
  /// the kernel does not support it, or its smallest version takes too long.
  [[nodiscard]] OrdinaryCall draw(Index index, const Dice& dice) const;

 private:
  [[nodiscard]] const std::vector<ModelSizes>& model_of(Index index) const;
  [[nodiscard]] bool draw_once(const std::vector<ModelSizes>& of, const CallKind& kind, Index index,
                               const Dice& dice, OrdinaryCall& out) const;

  const KernelRow& kernel_;
  std::vector<std::vector<ModelSizes>> models_;  ///< for each model, its divisions among devices
};

}  // namespace samestate
