#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace samestate::cli {

/// A file for what subjects and plugins print during a run, which would hide the run's own lines: compilers and tuners print much.
/// It lies in the folder for temporary files and stays there unless it is empty at the end.
class SubjectLog {
 public:
  enum class Of {
    many_calls,  ///< the file alone, which is named at the end
    one_line     ///< the first kShown bytes on stderr too, as they come; the file stays where there are more
  };
  static constexpr std::size_t kShown = 16 << 10;

  /// From now on processes of subjects (SubjectPatience::log) and those in which plugins are called (WorkerProcess::log_to) print
  /// there, unless SAMESTATE_SUBJECT_LOG says where. Nothing happens where nothing was brought, or there is no place for a file.
  explicit SubjectLog(const std::vector<std::string>& plugins, Of of = Of::many_calls);
  /// Names the file on stderr, unless `text` was asked for.
  ~SubjectLog();
  SubjectLog(const SubjectLog&) = delete;
  SubjectLog& operator=(const SubjectLog&) = delete;

  /// "what the kernel printed: /tmp/samestate-9aXp2c.log (12 kB)", for a summary; empty where it printed nothing.
  [[nodiscard]] std::string text();

 private:
  Of of_;
  std::string path_;
  std::uintmax_t before_ = 0;  ///< bytes of a file that was there
  bool own_ = false;           ///< made here
  bool told_ = false;
};

}  // namespace samestate::cli
