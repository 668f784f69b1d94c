#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// The order in which cases are started if kernels are compiled anew for some of their keys
/// (KernelRow::compiled_for). It is that of the list, except that a case that compiles is postponed after
/// cases of kernels that are compiled already while compiling has taken more than half of the time, and is
/// not started at all after `seconds`. So there is something to judge while the next variant is compiled.
class CompileOrder {
 public:
  /// `seconds` after which nothing is compiled (0: no case is postponed or left out), and the number of
  /// processes that compile at once: the seconds of each count as part of one. The cases and the table must
  /// outlive this object.
  CompileOrder(std::span<const Case> cases, const KernelTable& table, double seconds, int compilers)
      : cases_(cases), table_(table), seconds_(seconds), compilers_(compilers) {}

  /// The index of the next case, `elapsed` seconds after the first could start; nullopt if no case is left.
  [[nodiscard]] std::optional<std::size_t> next(double elapsed);

  /// Adds the time that a case spent compiling and tuning.
  void add(double compile_seconds) { spent_ += compile_seconds; }

  /// Indices of the cases that were left out because there was no time to compile them.
  [[nodiscard]] const std::vector<std::size_t>& left() const { return left_; }

 private:
  using Variant = std::optional<std::pair<const KernelRow*, std::vector<std::string>>>;
  [[nodiscard]] Variant variant(std::size_t index) const;
  [[nodiscard]] bool may_start(std::size_t index, double elapsed) const;
  std::size_t start(std::size_t index);

  std::span<const Case> cases_;
  const KernelTable& table_;
  double seconds_;
  int compilers_;
  double spent_ = 0.0;
  std::size_t next_ = 0;
  std::deque<std::size_t> put_off_;
  std::set<Variant> started_;  ///< the variants of which a case was started
  std::vector<std::size_t> left_;
};

}  // namespace samestate
