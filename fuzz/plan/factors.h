#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plan/dice.h"
#include "fuzz/plan/settle.h"
#include "harness/cases/keys.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// One choice of a case, divided into levels that a kernel may treat differently: a contract, a value of a
/// key, a band of a size. A plan covers pairs of levels of two factors.
struct Factor {
  std::string name;  ///< its name in the case line, or a name like Hv/Hk, T:chunk, threads
  std::vector<std::string> levels;
  std::int64_t odds = 2;  ///< one in this many drawn cases takes another level than the start's
  bool dear = false;      ///< a size: a smaller value takes less work
  /// The level that a case has; -1 if it has none of them, or does not have the factor.
  std::function<int(const Case&)> level = nullptr;
  /// Gives a case a value of that level, if possible; `settle` then adjusts the other keys.
  std::function<void(Case&, int level, const Dice&)> put = nullptr;
  /// Changes a case so that it has the factor, to the form that it belongs to. If empty, every case has it.
  std::function<void(Case&)> enable = nullptr;
  /// A case with a level other than the first proves nothing about pairs of other factors: a law compares a
  /// kernel with itself, so an error that is the same in both runs is not visible.
  bool compares = false;
  std::vector<std::string> fixes = {};  ///< factors that may not change without this one
  /// Another way to reach the level: for a size its least value, for T:chunk another chunk; if empty, put is
  /// used.
  std::function<void(Case&, int level)> put_least = nullptr;
  /// For a size: the boundaries among its values (boundaries.h), and a function that makes a case with one of
  /// them.
  std::vector<Index> values = {};
  std::function<void(Case&, Index)> put_value = nullptr;
  std::function<Index(const Case&)> value = nullptr;
};

/// True if the values of a key matter for a kernel: its system has the key, and the kernel supports strides,
/// taps or ranks if the key is about those.
[[nodiscard]] bool tries(const KernelRow& kernel, const Key& key);

/// The factors of a kernel's cases, from the rows of its system and of the keys, in the order in which they
/// must be put.
[[nodiscard]] std::vector<Factor> factors_of(const KernelRow& kernel);

/// Returns the factors whose pairs a plan covers: all of them, except that for a form over ranks only errors
/// of the ranks themselves matter, since a rank processes its tokens by the chunked form.
[[nodiscard]] std::vector<Factor> covered_factors_of(const KernelRow& kernel);

/// The levels of a case, one per factor.
[[nodiscard]] std::vector<int> levels_of(const std::vector<Factor>& factors, const Case& c);

/// Lowers the sizes that are not in `kept` until the work is at most `most`; returns true if it is.
[[nodiscard]] bool afford(Case& c, const KernelRow& kernel, const std::vector<Factor>& factors,
                          const std::vector<bool>& kept, double most, const Dice& dice);

}  // namespace samestate
