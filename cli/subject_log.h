#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace samestate::cli {

/// A file for the output of subjects and plugins during a run, which would hide the run's own lines, because
/// compilers and tuners print a lot. It is in the folder for temporary files, and is kept unless it is empty
/// at the end.
class SubjectLog {
 public:
  enum class Of {
    many_calls,  ///< the output goes only to the file, which is named at the end
    one_line  ///< the first kShown bytes also go to stderr as they come; the file is kept if there are more
  };
  static constexpr std::size_t kShown = 16 << 10;

  /// From now on the output of subjects' processes (SubjectPatience::log) and of those that call plugins
  /// (WorkerProcess::log_to) goes there, unless SAMESTATE_SUBJECT_LOG names a file. Does nothing if there is
  /// no plugin or subject, or no place for a file.
  explicit SubjectLog(const std::vector<std::string>& plugins, Of of = Of::many_calls);
  /// Names the file on stderr, unless `text` was called.
  ~SubjectLog();
  SubjectLog(const SubjectLog&) = delete;
  SubjectLog& operator=(const SubjectLog&) = delete;

  /// "what the kernel printed: /tmp/samestate-9aXp2c.log (12 kB)", for a summary; empty if it printed
  /// nothing.
  [[nodiscard]] std::string text();

 private:
  Of of_;
  std::string path_;
  std::uintmax_t before_ = 0;  ///< size of a file that already existed
  bool own_ = false;           ///< the file was created here
  bool told_ = false;
};

}  // namespace samestate::cli
