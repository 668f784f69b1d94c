#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/kernel_table.h"

/// Kernels that are compiled on their first call, whose compile time does not count for a case
/// (docs/subjects.md).
namespace samestate {

/// A key for which the kernel is compiled anew not for each value, but for each of three kinds: 1, multiples
/// of 16, and others, which is how Triton specialises integers. "T%16" is that of T.
inline constexpr std::string_view kBySixteen = "%16";

/// The values of the keys for which the kernel is compiled anew, as the case's first call of it has them; for
/// a key with %16, "1", "16" or "other".
[[nodiscard]] std::vector<std::string> variant_of(const KernelRow& kernel, Case c);

/// While it lives, calls on this thread are those of a case for these kernels.
class CallVariant {
 public:
  CallVariant(const KernelChoice& kernels, const Case& c);
  ~CallVariant();
  CallVariant(const CallVariant&) = delete;
  CallVariant& operator=(const CallVariant&) = delete;
  /// The variant that calls on this thread are compiled for; empty if there is none, or it is unknown.
  [[nodiscard]] static const std::string& of_this_thread();
};

/// While it lives, the clock of the calling thread's job is stopped: what it waits for has a separate limit
/// of `most` seconds, after which the job times out after all; with 0, what it waits for has its own limit.
class ExcusedTime {
 public:
  explicit ExcusedTime(double most = 0.0);
  ~ExcusedTime();
  ExcusedTime(const ExcusedTime&) = delete;
  ExcusedTime& operator=(const ExcusedTime&) = delete;
  /// Sets the function that is told when such a time begins or ends on this thread; null for none.
  static void tell(std::function<void(bool begins, double most)> listener);
};

}  // namespace samestate
