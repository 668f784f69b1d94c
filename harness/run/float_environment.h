#pragma once

#include <cstdint>
#include <string>

#include "harness/run/call_loop.h"

/// The control bits of the processor's floating-point units, which belong to a thread: a kernel that changes them changes what
/// the judge computes after it.
namespace samestate {

/// The kernel, or the loading of its library, left other control bits than it found. It is the verdict fail of gate environment.
class ChangedEnvironment : public Trespass {
 public:
  using Trespass::Trespass;
};

/// While it lives the calling thread has the default environment: round to nearest, subnormal numbers kept, no exception
/// raises a signal, 64 bits of x87 precision. Afterwards the thread has again what it had before.
class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  /// The fields that differ from the default now, in words, as "flush-to-zero (FTZ) on, rounding toward zero"; empty: none.
  /// The sticky flags of exceptions are no control bits, and every inexact sum sets them.
  [[nodiscard]] static std::string changed();

 private:
  std::uint64_t vector_ = 0;  ///< MXCSR; FPCR on AArch64
  std::uint16_t x87_ = 0;     ///< the x87 control word
};

/// Throws ChangedEnvironment where a call has left the calling thread's environment other than the default.
void require_unchanged();

}  // namespace samestate
