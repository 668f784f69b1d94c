#include "harness/processes/compile_order.h"

#include "harness/cases/resolved.h"
#include "harness/run/call_variant.h"

namespace samestate {

CompileOrder::Variant CompileOrder::variant(std::size_t index) const {
  if (seconds_ <= 0.0) return std::nullopt;
  const KernelRow& row = *table_.choose(Resolved(cases_[index])).named;
  if (row.compiled_for.empty()) return std::nullopt;
  return std::pair(&row, variant_of(row, cases_[index]));
}

bool CompileOrder::may_start(std::size_t index, double elapsed) const {
  constexpr double kShare = 0.5;
  const Variant its = variant(index);
  if (!its || started_.contains(its)) return true;
  return elapsed <= seconds_ && spent_ <= kShare * compilers_ * elapsed;
}

std::size_t CompileOrder::start(std::size_t index) {
  if (Variant its = variant(index)) started_.insert(std::move(its));
  return index;
}

std::optional<std::size_t> CompileOrder::next(double elapsed) {
  const auto first_put_off = [&] {
    const std::size_t index = put_off_.front();
    put_off_.pop_front();
    return start(index);
  };
  if (!put_off_.empty() && may_start(put_off_.front(), elapsed)) return first_put_off();
  while (next_ < cases_.size()) {
    if (may_start(next_, elapsed)) return start(next_++);
    put_off_.push_back(next_++);
  }
  if (put_off_.empty()) return std::nullopt;
  // Nothing else is left to be done.
  if (elapsed <= seconds_) return first_put_off();
  left_.insert(left_.end(), put_off_.begin(), put_off_.end());
  put_off_.clear();
  return std::nullopt;
}

}  // namespace samestate
