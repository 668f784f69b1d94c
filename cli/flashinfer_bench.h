#pragma once

#include <optional>
#include <string>
#include <vector>

namespace samestate::cli {

/// What the Python package is asked for by `export --flashinfer-bench DIR ..` and `judge --flashinfer-bench DIR ..`; empty
/// for other words of the command line (without its own name). Throws Error if the folder is missing.
[[nodiscard]] std::optional<std::vector<std::string>> flashinfer_bench_words(
    const std::vector<std::string>& words);

/// Becomes the package's program (python/samestate/flashinfer_bench.py), whose exit codes are the gate's. Throws Error where
/// there is no Python.
[[noreturn]] void run_flashinfer_bench(const std::vector<std::string>& words);

}  // namespace samestate::cli
