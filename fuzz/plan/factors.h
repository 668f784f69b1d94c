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

/// One thing that a case chooses, cut into the levels that a kernel may treat differently: a contract, a value of a
/// key, a band of a size. Pairs of levels of two factors are what a plan covers.
struct Factor {
  std::string name;  ///< as the case line calls it, or as in Hv/Hk, T:chunk, threads
  std::vector<std::string> levels;
  std::int64_t odds = 2;  ///< one drawn case in so many takes another level than the start's
  bool dear = false;      ///< a size: less of it is less work
  /// Which level a case has; -1: none of them, or the case does not have the factor.
  std::function<int(const Case&)> level = nullptr;
  /// Gives a case a value of that level, where it can; `settle` then says what becomes of the others.
  std::function<void(Case&, int level, const Dice&)> put = nullptr;
  /// Makes a case one that has the factor: of the form that it belongs to. Empty: every case has it.
  std::function<void(Case&)> enable = nullptr;
  /// A case of another level than the first is no witness of other factors' pairs: a law compares a kernel with itself,
  /// and what is wrong alike in both of its runs shows in neither.
  bool compares = false;
  std::vector<std::string> fixes = {};  ///< the factors that may not change without this one
  /// Another way to it: of a size the least value of that level, for T:chunk another chunk; empty: put's.
  std::function<void(Case&, int level)> put_least = nullptr;
  /// Of a size: the boundaries among its values (boundaries.h), and a case with one of them.
  std::vector<Index> values = {};
  std::function<void(Case&, Index)> put_value = nullptr;
  std::function<Index(const Case&)> value = nullptr;
};

/// Whether the values of a key say anything of a kernel: its system has the key, and the kernel strides, taps or ranks where
/// the key is of those.
[[nodiscard]] bool tries(const KernelRow& kernel, const Key& key);

/// The factors of a kernel's cases, from the rows of its system and of the keys; to be put in this order.
[[nodiscard]] std::vector<Factor> factors_of(const KernelRow& kernel);

/// Those of them whose pairs a plan covers: all, but of a form over ranks what the ranks themselves may get wrong, since what
/// a rank does with its tokens is the chunked form's.
[[nodiscard]] std::vector<Factor> covered_factors_of(const KernelRow& kernel);

/// The levels of a case, one a factor.
[[nodiscard]] std::vector<int> levels_of(const std::vector<Factor>& factors, const Case& c);

/// Lowers the factors that are dear and not in `kept` until the work is at most `most`; says whether it is.
[[nodiscard]] bool afford(Case& c, const KernelRow& kernel, const std::vector<Factor>& factors,
                          const std::vector<bool>& kept, double most, const Dice& dice);

}  // namespace samestate
