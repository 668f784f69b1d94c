#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace samestate {

/// What recorded runs on devices say of one kernel: JSON Lines of `samestate gate --jsonl`, kept in
/// reports/evidence/.
struct Evidence {
  std::string kernel;
  std::string device, driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  std::int64_t passed = 0;
  std::int64_t failed = 0;  ///< fail, crash, timeout, flaky
};

/// One entry a kernel and device, of every *.jsonl file in `folder`, sorted by file; only kernels that are
/// not on the CPU. A folder that does not exist holds none. Throws Error for a file that is no record of
/// runs.
[[nodiscard]] std::vector<Evidence> read_evidence(const std::filesystem::path& folder);

}  // namespace samestate
