#pragma once

#include <string>
#include <vector>

namespace samestate::cli {

/// A file for what subjects print during a run, which would hide the run's own lines: compilers and tuners print much. It lies in
/// the folder for temporary files and stays there unless it is empty at the end.
class SubjectLog {
 public:
  /// From now on processes of subjects print there (SubjectPatience::log), unless SAMESTATE_SUBJECT_LOG says where. Nothing
  /// happens without a subject, or where there is no place for a file.
  explicit SubjectLog(const std::vector<std::string>& plugins);
  ~SubjectLog();
  SubjectLog(const SubjectLog&) = delete;
  SubjectLog& operator=(const SubjectLog&) = delete;

  /// "what the subject printed: /tmp/samestate-9aXp2c.log (12 kB)"; empty where it printed nothing.
  [[nodiscard]] std::string text() const;

 private:
  std::string path_;
  bool own_ = false;  ///< made here
};

}  // namespace samestate::cli
