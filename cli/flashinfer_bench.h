#pragma once

#include <optional>
#include <string>
#include <vector>

namespace samestate::cli {

/// The arguments for the Python package in `export --flashinfer-bench DIR ..` and `judge --flashinfer-bench
/// DIR ..`; nullopt for any other command line (without the command's name). Throws Error if the folder is
/// missing.
[[nodiscard]] std::optional<std::vector<std::string>> flashinfer_bench_words(
    const std::vector<std::string>& words);

/// Replaces this process by the package's program (python/samestate/flashinfer_bench.py), whose exit codes
/// are the gate's. Throws Error if there is no Python.
[[noreturn]] void run_flashinfer_bench(const std::vector<std::string>& words);

}  // namespace samestate::cli
