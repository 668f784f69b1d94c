#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace samestate {

struct KernelCall;
struct KernelRow;

/// Hashes of what the calls of one case wrote on a device, so that two devices can be compared bit for bit:
/// for each output a 64-bit FNV-1a hash over the 32 bits of its elements, row-major, call after call,
/// including calls whose results are discarded (repeat=1). It covers the calls that this thread makes while
/// the object lives (run_row); CPU kernels are not counted.
class OutputHashes {
 public:
  OutputHashes();
  ~OutputHashes();
  OutputHashes(const OutputHashes&) = delete;
  OutputHashes& operator=(const OutputHashes&) = delete;

  /// "o:0123456789abcdef final_state:..", in the order in which the outputs were first written; empty if
  /// there are none.
  [[nodiscard]] std::string text() const;

  /// Adds a call that ran.
  static void count(const KernelRow& kernel, const KernelCall& call);

 private:
  std::vector<std::pair<std::string, std::uint64_t>> hashes_;
  OutputHashes* outer_;
};

}  // namespace samestate
