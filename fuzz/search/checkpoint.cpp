#include "fuzz/search/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "harness/records/hash.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Version of the lines.
constexpr std::string_view kMagic = "samestate-fuzz-checkpoint 1 ";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error(path.string() + ": cannot be read");
  return text;
}

std::string with_sum(const std::string& text) { return fmt::format("{}\t{:016x}\n", text, hash_of(text)); }

std::string text_of(const CheckpointEntry& entry) {
  return fmt::format("{}\t{:.3f}\t{}", entry.index, entry.elapsed, result_text(entry.finding));
}

template <class Number>
Number number_of(std::string_view text) {
  Number x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size()) throw Error("damaged number");
  return x;
}

std::string_view take(std::string_view& text) {
  const std::size_t tab = text.find('\t');
  if (tab == std::string_view::npos) throw Error("too few fields");
  const std::string_view field = text.substr(0, tab);
  text.remove_prefix(tab + 1);
  return field;
}

CheckpointEntry entry_of(std::string_view line) {
  const std::size_t tab = line.rfind('\t');
  if (tab == std::string_view::npos) throw Error("no sum");
  const std::string_view body = line.substr(0, tab);
  if (line.substr(tab + 1) != fmt::format("{:016x}", hash_of(body))) throw Error("its sum does not fit");
  std::string_view rest = body;
  CheckpointEntry entry;
  entry.index = number_of<std::int64_t>(take(rest));
  entry.elapsed = number_of<double>(take(rest));
  entry.finding = parse_result(rest);
  return entry;
}

}  // namespace

std::uint64_t checkpoint_seed(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw Error(path.string() + ": is not there; leave --resume out to begin it");
  }
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const std::size_t at = line.find(" seed=0x");
  std::uint64_t seed = 0;
  if (!in || !line.starts_with(kMagic) || at == std::string::npos ||
      std::from_chars(line.data() + at + 8, line.data() + line.size(), seed, 16).ec != std::errc{}) {
    throw Error(path.string() + ": line 1: no checkpoint of this version; name another file");
  }
  return seed;
}

Checkpoint::Checkpoint(const std::filesystem::path& path, const std::string& title) : path_(path) {
  if (std::filesystem::exists(path)) {
    throw Error(path.string() + ": exists already; go on with it by --resume, or name another file");
  }
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw Error(
        fmt::format("{}: cannot be made ({}); name another file", path.string(), std::strerror(errno)));
  }
  lock();
  write(std::string(kMagic) + title + "\n");
}

Checkpoint::Checkpoint(const std::filesystem::path& path, const std::string& title,
                       std::vector<CheckpointEntry>& entries)
    : path_(path) {
  file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) {
    throw Error(fmt::format("{}: cannot be opened ({}); leave --resume out to begin it", path.string(),
                            std::strerror(errno)));
  }
  try {
    lock();
    const std::string text = text_of(path);
    lock();  // closing the file that was read gave the lock up
    std::size_t at = 0;
    for (std::int64_t number = 1; at < text.size(); ++number) {
      const std::size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // the write that a kill cut
      const std::string_view line(text.data() + at, end - at);
      if (number == 1) {
        if (!line.starts_with(kMagic)) {
          throw Error(path.string() + ": line 1: no checkpoint of this version; name another file");
        }
        if (line.substr(kMagic.size()) != title) {
          throw Error(fmt::format("{}: holds the search '{}', and this is '{}': name another file",
                                  path.string(), line.substr(kMagic.size()), title));
        }
      } else {
        try {
          entries.push_back(entry_of(line));
        } catch (const Error& error) {
          throw Error(fmt::format("{}: line {}: damaged ({}); begin another file", path.string(), number,
                                  error.what()));
        }
      }
      at = end + 1;
    }
    if (at == 0) throw Error(path.string() + ": line 1: no checkpoint; name another file");
    if (at < text.size() && ::ftruncate(file_, static_cast<off_t>(at)) != 0) {
      throw Error(fmt::format("{}: its unfinished last line cannot be cut off ({})", path.string(),
                              std::strerror(errno)));
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
}

Checkpoint::~Checkpoint() {
  if (file_ >= 0) ::close(file_);
}

void Checkpoint::lock() {
  // Of this process alone: workers that still live for a moment after a kill do not hold it.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file_, F_SETLK, &whole) != 0) {
    throw Error(path_.string() + ": another search is writing it; name another file");
  }
}

void Checkpoint::write(const std::string& line) {
  ssize_t n = 0;
  do n = ::write(file_, line.data(), line.size());
  while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(line.size())) {
    throw Error(fmt::format("{}: cannot be written ({}); free space", path_.string(), std::strerror(errno)));
  }
}

void Checkpoint::append(const CheckpointEntry& entry) { write(with_sum(text_of(entry))); }

}  // namespace samestate
