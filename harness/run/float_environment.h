#pragma once

#include <cstdint>
#include <string>

#include "harness/run/call_loop.h"

/// The control bits of the CPU's floating-point units, which belong to a thread: a kernel that changes them
/// changes what the judge computes afterwards.
namespace samestate {

/// The kernel, or loading its library, changed the control bits. This becomes the verdict fail with gate
/// environment.
class ChangedEnvironment : public Trespass {
 public:
  using Trespass::Trespass;
};

/// While it lives the calling thread has the default environment: rounding to nearest, subnormal numbers
/// kept, no exception raises a signal, 64 bits of x87 precision. Afterwards the thread's previous environment
/// is restored.
class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  /// The fields that differ from the default now, in words, for example "flush-to-zero (FTZ) on, rounding
  /// toward zero"; empty if none do. The sticky exception flags do not count, since every inexact sum sets
  /// them.
  [[nodiscard]] static std::string changed();

 private:
  std::uint64_t vector_ = 0;  ///< MXCSR; FPCR on AArch64
  std::uint16_t x87_ = 0;     ///< the x87 control word
};

/// Throws ChangedEnvironment if a call has changed the calling thread's environment from the default.
void require_unchanged();

}  // namespace samestate
