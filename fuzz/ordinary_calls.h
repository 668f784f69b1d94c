#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuzz/dice.h"
#include "harness/run/kernel_table.h"
#include "harness/systems/model_sizes.h"

namespace samestate {

/// One way in which servers and trainers call a kernel.
struct CallKind {
  std::string_view name;
  std::string_view summary;
  Index tokens = 1;  ///< the fewest tokens, and the smallest batch, that still make it a call of this kind
  Index batch = 1;
  /// Gives a case the form, batch, tokens and states of such a call. False where the kernel's system has no such call.
  bool (*put)(Case& c, const KernelRow& kernel, const Dice& dice) = nullptr;
};

/// A call as a program around a model makes it.
struct OrdinaryCall {
  Case c;
  std::string_view model;  ///< of the catalogue (fixtures/models.h)
  std::string_view kind;
  bool smaller = false;       ///< a size of the model was made smaller, so that the call stays affordable
  std::string_view why = {};  ///< why there is no such case
};

/// OrdinaryCall::why where the system has no calls of that kind.
inline constexpr std::string_view kNoSuchCall = "the system has no such call";

/// Seconds of one core that judging the case takes, about; infinite for sizes that are impossible together.
[[nodiscard]] double seconds_of_call(const KernelRow& kernel, const Case& c);

/// Seconds of judging that an ordinary call may take on one core. About one call in ten may take the longer time: only such calls
/// combine several sizes of a model with a realistic number of tokens.
inline constexpr double kSecondsOfCall = 0.5;
inline constexpr double kSecondsOfDearCall = 2.0;

/// Draws ordinary calls of one kernel: model x kind of call x tokens x data x settings. The models and kinds take turns, so that the
/// first calls meet each model and each kind; all else is drawn. Where a call would take more than its share of kSecondsOfCall, some
/// of its sizes, tokens or sequences are made smaller: a random part of them keeps the model's values, so that many calls together
/// meet each of them beside each other.
class OrdinaryCalls {
 public:
  explicit OrdinaryCalls(const KernelRow& kernel);

  /// How many models have a layer of the kernel's system.
  [[nodiscard]] Index models() const { return std::ssize(models_); }
  /// How often a model and a kind of call have to be drawn until each pair of them had its turn.
  [[nodiscard]] Index round() const;

  /// Model and kind of call number `index`, without a case.
  [[nodiscard]] OrdinaryCall turn(Index index) const;

  /// Call number `index`; `c` is an empty case where there is no such call: the system has none of the kind, or the kernel does
  /// not take it, or its smallest form takes too long.
  [[nodiscard]] OrdinaryCall draw(Index index, const Dice& dice) const;

 private:
  [[nodiscard]] const std::vector<ModelSizes>& model_of(Index index) const;
  [[nodiscard]] bool draw_once(const std::vector<ModelSizes>& of, const CallKind& kind, Index index,
                               const Dice& dice, OrdinaryCall& out) const;

  const KernelRow& kernel_;
  std::vector<std::vector<ModelSizes>> models_;  ///< the divisions of each model
};

}  // namespace samestate
