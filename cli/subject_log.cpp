#include "cli/subject_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>

#include "harness/processes/printed.h"
#include "harness/processes/worker_process.h"

namespace samestate::cli {
namespace {

constexpr const char* kVariable = "SAMESTATE_SUBJECT_LOG";

std::uintmax_t size_of(const std::string& path) {
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(path, none);
  return none ? 0 : size;
}

}  // namespace

SubjectLog::SubjectLog(const std::vector<std::string>& plugins, Of of) : of_(of) {
  if (plugins.empty()) return;
  const auto begin = [&] {
    WorkerProcess::log_to(path_);
    if (of == Of::one_line) Printed::show(kShown);
  };
  if (const char* given = std::getenv(kVariable); given != nullptr && *given != '\0') {
    path_ = given;
    before_ = size_of(path_);
    begin();
    return;
  }
  std::error_code none;
  std::string path = (std::filesystem::temp_directory_path(none) / "samestate-XXXXXX.log").string();
  const int file = ::mkstemps(path.data(), static_cast<int>(std::string_view(".log").size()));
  if (file < 0) return;
  ::close(file);
  ::setenv(kVariable, path.c_str(), 1);
  path_ = std::move(path), own_ = true;
  begin();
}

SubjectLog::~SubjectLog() {
  if (path_.empty()) return;
  // If a subject does not start, the error already contains its last output.
  const bool printed_why = std::uncaught_exceptions() > 0 && size_of(path_) - before_ < kShown;
  const bool shown = of_ == Of::one_line && size_of(path_) - before_ < kShown;
  if (!told_ && !shown && !printed_why) {
    if (const std::string said = text(); !said.empty()) fmt::print(stderr, "samestate: {}\n", said);
  }
  WorkerProcess::log_to("");
  Printed::show(0);
  if (!own_) return;
  ::unsetenv(kVariable);
  if (shown || printed_why || size_of(path_) == 0) ::unlink(path_.c_str());
}

std::string SubjectLog::text() {
  told_ = true;
  const std::uintmax_t size = path_.empty() ? 0 : size_of(path_);
  return size == before_ ? ""
                         : fmt::format("what the kernel printed: {} ({} kB)", path_, (size + 1023) / 1024);
}

}  // namespace samestate::cli
