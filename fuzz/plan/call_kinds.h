#pragma once

#include <span>
#include <string_view>

#include "fuzz/plan/dice.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// One of the ways in which servers and trainers call a kernel.
struct CallKind {
  std::string_view name;
  std::string_view summary;
  Index tokens = 1;  ///< the smallest number of tokens, and the smallest batch, for a call of this kind
  Index batch = 1;
  /// Gives a case the form, batch, tokens and states of such a call. Returns false if the kernel's system has
  /// no such call.
  bool (*put)(Case& c, const KernelRow& kernel, const Dice& dice) = nullptr;
};

/// Training step, prefill, chunked prefill, packed batch, decode batch, decode one, verify, resume.
[[nodiscard]] std::span<const CallKind> call_kinds();

/// True for a kernel on a pool of slots, which serves single tokens; it is neither trained nor prefilled.
[[nodiscard]] bool serves_slots(const KernelRow& kernel);

}  // namespace samestate
