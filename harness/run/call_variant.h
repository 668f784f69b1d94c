#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/kernel_table.h"

/// Kernels that are compiled by their first call, whose time is not a case's (docs/lookup/subjects.md).
namespace samestate {

/// A key of which not each value is compiled anew, but each of three kinds of values: 1, multiples of 16 and others, which is what
/// Triton makes of whole numbers that a kernel is given. "T%16" is that of T.
inline constexpr std::string_view kBySixteen = "%16";

/// Returns the values of the keys that the kernel is compiled anew for, as the first call of the case that it makes shows
/// them; for a key by sixteens "1", "16" or "other".
[[nodiscard]] std::vector<std::string> variant_of(const KernelRow& kernel, Case c);

/// While it lives the calling thread's calls are a case's of these kernels.
class CallVariant {
 public:
  CallVariant(const KernelChoice& kernels, const Case& c);
  ~CallVariant();
  CallVariant(const CallVariant&) = delete;
  CallVariant& operator=(const CallVariant&) = delete;
  /// What the calls of this thread are compiled for; empty: nothing, or nobody knows.
  [[nodiscard]] static const std::string& of_this_thread();
};

/// While it lives the time of the calling thread's job does not count: what it waits for has a limit of its own, `most`
/// seconds, after which the job is over time all the same; 0: what it waits for keeps its limit itself.
class ExcusedTime {
 public:
  explicit ExcusedTime(double most = 0.0);
  ~ExcusedTime();
  ExcusedTime(const ExcusedTime&) = delete;
  ExcusedTime& operator=(const ExcusedTime&) = delete;
  /// Whom the calling thread tells that such a time begins, or is over; null: nobody.
  static void tell(std::function<void(bool begins, double most)> listener);
};

}  // namespace samestate
