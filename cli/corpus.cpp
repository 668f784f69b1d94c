#include "cli/corpus.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "cli/data_folder.h"
#include "reports/records/files.h"

namespace samestate::cli {

const std::string& standard_corpus() {
  static const std::string folder = data_folder("corpus");
  return folder;
}

std::vector<CorpusEntry> corpus_of(const std::string& folder) {
  if (folder == standard_corpus() && !std::filesystem::is_directory(folder)) return {};
  return read_corpus(folder);
}

bool append_to_corpus(const std::string& folder, const std::string& comment, const Case& c) {
  const std::filesystem::path path = std::filesystem::path(folder) / (c.system + ".txt");
  make_parent_folder(path);
  // Two searches may share a corpus: the lock lets one at a time read and replace it.
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock >= 0) ::flock(lock, LOCK_EX);
  try {
    (void)read_corpus(folder);
    const std::string text = text_of(path).value_or("");
    const std::string longer = with_entry(text, comment, c);
    if (longer != text) write_atomically(path, longer);
    if (lock >= 0) ::close(lock);
    return longer != text;
  } catch (...) {
    if (lock >= 0) ::close(lock);
    throw;
  }
}

}  // namespace samestate::cli
