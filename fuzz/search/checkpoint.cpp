#include "fuzz/search/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "harness/cases/shards.h"
#include "harness/records/fresh_file.h"
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

/// Reads the lines of a checkpoint: the first goes to `title`, the others to entries. Returns where the last
/// complete line ends, 0 if there is none.
std::size_t read_lines(const std::filesystem::path& path, std::string_view text,
                       const std::function<void(std::string_view)>& title,
                       std::vector<CheckpointEntry>& entries) {
  std::size_t at = 0;
  for (std::int64_t number = 1; at < text.size(); ++number) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;  // the write that a kill interrupted
    const std::string_view line = text.substr(at, end - at);
    if (number == 1) {
      if (!line.starts_with(kMagic))
        throw Error(path.string() + ": line 1: no checkpoint of this version; name another file");
      title(line.substr(kMagic.size()));
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
  return at;
}

/// Returns the value of `key` in a title.
std::string_view value_of(std::string_view title, std::string_view key) {
  const std::string wanted = fmt::format("{}=", key);
  const std::size_t at = title.starts_with(wanted) ? 0 : title.find(" " + wanted);
  if (at == std::string_view::npos) throw Error(fmt::format("no {} in its first line", key));
  title.remove_prefix(at + wanted.size() + (at == 0 ? 0 : 1));
  return title.substr(0, title.find(' '));
}

std::uint64_t seed_of(std::string_view text) {
  std::uint64_t seed = 0;
  if (!text.starts_with("0x") || text.size() < 3) throw Error("damaged seed");
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), seed, 16);
  if (error != std::errc{} || end != text.data() + text.size()) throw Error("damaged seed");
  return seed;
}

CheckpointTitle title_of(const std::filesystem::path& path, std::string_view text) {
  try {
    CheckpointTitle out;
    out.build = value_of(text, "build");
    out.seed = seed_of(value_of(text, "seed"));
    out.kernels = value_of(text, "kernels");
    const std::string_view shard = value_of(text, "shard");
    const std::size_t slash = std::min(shard.find('/'), shard.size());
    out.shard = number_of<std::int64_t>(shard.substr(0, slash));
    out.shards = number_of<std::int64_t>(shard.substr(std::min(slash + 1, shard.size())));
    if (out.shards < 1 || out.shards > kMostShards || out.shard < 0 || out.shard >= out.shards)
      throw Error(fmt::format("shard {}/{}", out.shard, out.shards));
    return out;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: line 1: damaged ({}); name another file", path.string(), error.what()));
  }
}

}  // namespace

std::string CheckpointTitle::text() const {
  return fmt::format("build={} seed={:#x} shard={}/{} kernels={}", build, seed, shard, shards, kernels);
}

bool is_begun_checkpoint(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return false;
  std::string line;
  {
    std::ifstream in(path, std::ios::binary);
    // If it is not a file, or is another kind of file, opening it gives the message.
    if (std::getline(in, line) && !in.eof()) return true;
  }
  const bool cut = kMagic.starts_with(line) || line.starts_with(kMagic);
  if (!std::filesystem::is_regular_file(path) || !cut) return true;
  std::error_code error;
  return !std::filesystem::remove(path, error);
}

std::uint64_t checkpoint_seed(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw Error(path.string() + ": is not there; leave --resume out to begin it");
  }
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  if (!in || !line.starts_with(kMagic))
    throw Error(path.string() + ": line 1: no checkpoint of this version; name another file");
  return title_of(path, std::string_view(line).substr(kMagic.size())).seed;
}

bool is_checkpoint(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  // A checkpoint of another version counts too: the message then names the version.
  std::string begin(kMagic.substr(0, kMagic.find(' ')).size(), '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return in && kMagic.starts_with(begin);
}

Checkpoint::Checkpoint(const std::filesystem::path& path, const std::string& title) : path_(path) {
  if (std::filesystem::exists(path)) {
    throw Error(path.string() + ": exists already; go on with it by --resume, or name another file");
  }
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) {
    throw Error(
        fmt::format("{}: cannot be made ({}); name another file", path.string(), std::strerror(errno)));
  }
  file_ = LineFile(path, file);
  lock();
  file_.append(std::string(kMagic) + title + "\n");
}

Checkpoint::Checkpoint(const std::filesystem::path& path, const std::string& title,
                       std::vector<CheckpointEntry>& entries)
    : path_(path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) {
    throw Error(fmt::format("{}: cannot be opened ({}); leave --resume out to begin it", path.string(),
                            std::strerror(errno)));
  }
  file_ = LineFile(path, file);
  lock();
  const std::string text = text_of(path);
  lock();  // closing the file that was read released the lock
  const auto check = [&](std::string_view held) {
    if (held == title) return;
    throw Error(fmt::format("{}: holds the search '{}', and this is '{}': name another file", path.string(),
                            held, title));
  };
  const std::size_t end = read_lines(path, text, check, entries);
  if (end < text.size() && ::ftruncate(file, static_cast<off_t>(end)) != 0) {
    throw Error(fmt::format("{}: its unfinished last line cannot be cut off ({})", path.string(),
                            std::strerror(errno)));
  }
}

void Checkpoint::lock() {
  // The lock belongs to this process alone: workers that outlive a kill for a moment do not hold it.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file_.descriptor(), F_SETLK, &whole) != 0) {
    throw Error(path_.string() + ": another search is writing it; name another file");
  }
}

void Checkpoint::append(const CheckpointEntry& entry) { file_.append(with_sum(text_of(entry))); }

std::int64_t merge_checkpoints(std::span<const std::filesystem::path> files,
                               const std::filesystem::path& out) {
  std::map<std::int64_t, std::filesystem::path> shards;
  std::map<std::int64_t, CheckpointEntry> cases;
  CheckpointTitle whole;
  for (const std::filesystem::path& file : files) {
    CheckpointTitle title;
    std::vector<CheckpointEntry> entries;
    (void)read_lines(
        file, text_of(file), [&](std::string_view text) { title = title_of(file, text); }, entries);
    CheckpointTitle alike = title;
    alike.shard = whole.shard;
    if (shards.empty()) whole = title;
    if (!shards.empty() && alike.text() != whole.text()) {
      throw Error(fmt::format("{} holds the search '{}', and {} '{}': merge the shards of one search",
                              shards.begin()->second.string(), whole.text(), file.string(), title.text()));
    }
    const auto [known, fresh] = shards.emplace(title.shard, file);
    if (!fresh) {
      throw Error(fmt::format("shard {}/{} is in {} and in {}; give each shard once", title.shard,
                              title.shards, known->second.string(), file.string()));
    }
    for (CheckpointEntry& entry : entries) {
      const std::int64_t index = entry.index;
      if (index < 0 || index % title.shards != title.shard ||
          !cases.emplace(index, std::move(entry)).second) {
        throw Error(fmt::format("{}: case {} is not of shard {}/{} or stands twice; begin another file",
                                file.string(), index, title.shard, title.shards));
      }
    }
  }
  for (std::int64_t i = 0; i < whole.shards; ++i) {
    if (shards.contains(i)) continue;
    throw Error(fmt::format("shard {}/{} is missing, {} of {} are there; name its checkpoint too", i,
                            whole.shards, shards.size(), whole.shards));
  }
  whole.shard = 0;
  whole.shards = 1;
  FreshFile file(out);
  file.append(std::string(kMagic) + whole.text() + "\n");
  for (const auto& [index, entry] : cases) file.append(with_sum(text_of(entry)));
  file.put_in_place();
  return std::ssize(cases);
}

}  // namespace samestate
