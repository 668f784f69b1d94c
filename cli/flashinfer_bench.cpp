#include "cli/flashinfer_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "fixtures/quote.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

constexpr std::string_view kOption = "--flashinfer-bench";

/// Reports a missing package as bad input; Python's own exit code would mean a failure.
constexpr const char* kProgram = R"(import sys
try:
    from samestate.flashinfer_bench import main
except ImportError as error:
    print(f"samestate: --flashinfer-bench: {sys.executable}: {error}; pip install ./python, or SAMESTATE_PYTHON names "
          "an interpreter that has the package", file=sys.stderr)
    sys.exit(2)
sys.exit(main())
)";

}  // namespace

std::optional<std::vector<std::string>> flashinfer_bench_words(const std::vector<std::string>& words) {
  if (words.empty() || (words[0] != "export" && words[0] != "judge")) return std::nullopt;
  const auto is_option = [](const std::string& word) {
    return word == kOption || word.starts_with(fmt::format("{}=", kOption));
  };
  const auto found = std::find_if(words.begin() + 1, words.end(), is_option);
  if (found == words.end()) return std::nullopt;
  const bool joined = *found != kOption;
  const auto folder = joined ? found : found + 1;
  const std::string name = folder == words.end() ? "" : joined ? folder->substr(kOption.size() + 1) : *folder;
  if (name.empty() || (!joined && name.starts_with("-")))
    throw Error(fmt::format("{} {}: name a folder: {} DIR", words[0], kOption, kOption));
  std::vector<std::string> out = words[0] == "export" ? std::vector<std::string>{"definitions", "--out", name}
                                                      : std::vector<std::string>{"judge", name};
  out.insert(out.end(), words.begin() + 1, found);
  out.insert(out.end(), folder + 1, words.end());
  return out;
}

void run_flashinfer_bench(const std::vector<std::string>& words) {
  std::error_code none;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", none).string();
  ::setenv("SAMESTATE", self.c_str(), /*overwrite=*/0);
  const char* named = std::getenv("SAMESTATE_PYTHON");
  std::string python = named != nullptr && *named != '\0' ? named : "python3";
  std::vector<std::string> all{python, "-c", kProgram};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw Error(
      fmt::format("{}: {} cannot be started ({}); SAMESTATE_PYTHON names a Python that has the package",
                  kOption, quote(python), std::strerror(errno)));
}

}  // namespace samestate::cli
