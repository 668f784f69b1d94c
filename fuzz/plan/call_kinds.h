#pragma once

#include <span>
#include <string_view>

#include "fuzz/plan/dice.h"
#include "harness/run/kernel_table.h"

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

/// Training step, prefill, chunked prefill, packed batch, decode batch, decode one, verify, resume.
[[nodiscard]] std::span<const CallKind> call_kinds();

/// A pool of slots serves single tokens; it is neither trained nor prefilled.
[[nodiscard]] bool serves_slots(const KernelRow& kernel);

}  // namespace samestate
