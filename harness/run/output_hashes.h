#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace samestate {

struct KernelCall;
struct KernelRow;

/// What the calls of one case wrote on a device, so that two devices can be held against each other bit for bit: of each
/// output a 64-bit FNV-1a hash over its elements' 32 bits, row-major, call after call, those that are thrown away too
/// (repeat=1). Counts the calls that this thread makes while it lives (run_row); kernels of the processor are not counted.
class OutputHashes {
 public:
  OutputHashes();
  ~OutputHashes();
  OutputHashes(const OutputHashes&) = delete;
  OutputHashes& operator=(const OutputHashes&) = delete;

  /// "o:0123456789abcdef final_state:..", in the order in which they were first written; empty where none was.
  [[nodiscard]] std::string text() const;

  /// After a call that ran.
  static void count(const KernelRow& kernel, const KernelCall& call);

 private:
  std::vector<std::pair<std::string, std::uint64_t>> hashes_;
  OutputHashes* outer_;
};

}  // namespace samestate
