#include "reports/records/board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>

#include "reference/error.h"
#include "reports/records/digest.h"
#include "reports/records/evidence.h"
#include "reports/records/failure_groups.h"
#include "reports/records/packages.h"
#include "reports/records/summary.h"

namespace samestate {
namespace {

/// kernel, versions, device, contract, sources
using BoardKey = std::tuple<std::string, std::string, std::string, std::string, std::string>;

/// The newest record of a line, and the data of its run.
struct Newest {
  const Record* record = nullptr;
  const Run* run = nullptr;
};

BoardKey key_of(const Run& run, const Record& record) {
  std::string versions = packages_of(run.plugins, record.options);
  std::string sources;
  if (versions.empty() && record.options.empty()) {
    versions = fmt::format("samestate {}{}{}", run.version, run.commit.empty() ? "" : " ", run.commit);
    if (record.device == "cuda") sources = sources_of(run.kernel_sources, record.kernel);
  }
  return {record.kernel, std::move(versions), record.device == "cuda" ? run.device : record.device,
          record.contract, std::move(sources)};
}

void add(BoardRow& row, const Record& r) {
  const Judgement& j = r.judgement;
  ++row.cases;
  if (j.verdict == Verdict::vacuous) ++row.vacuous;
  if (j.verdict == Verdict::unsupported) ++row.unsupported;
  if (is_failure(j.verdict)) ++row.failed;
  if (j.verdict != Verdict::pass && !is_failure(j.verdict)) return;
  const double ratio =
      is_judged(j.verdict) && !std::isnan(j.ratio) ? j.ratio : std::numeric_limits<double>::infinity();
  if (!(ratio <= row.worst)) row.worst = ratio, row.worst_line = r.line;
  if (j.verdict != Verdict::pass) return;
  ++row.passed;
  row.passing.insert(r.line);
  if (row.nearest() && j.twin_ratio > 1.0) ++row.beyond;
}

/// Returns the failures of a row, one defect per kind.
std::vector<BoardDefect> defects_of(const std::vector<Record>& records) {
  std::vector<BoardDefect> out;
  for (const FailureGroup& group : failure_groups(records)) {
    const Record& first = records[group.example];
    BoardDefect defect{
        fmt::format("form {}{}: {}{}", group.form, group.law.empty() ? "" : ", law " + group.law, group.cause,
                    group.only.empty() ? "" : " (only with " + group.only + ")"),
        first.judgement.reason.empty() ? std::string(name_of(first.judgement.verdict))
                                       : first.judgement.reason,
        {first.line}};
    for (const std::size_t i : group.members) {
      if (i != group.example) defect.lines.push_back(records[i].line);
    }
    out.push_back(std::move(defect));
  }
  return out;
}

/// Finds how two rows of one kernel, device and contract differ.
class Differences {
 public:
  Differences(const BoardRow& before, const BoardRow& after, std::vector<BoardChange>& changes)
      : before_(before), after_(after), changes_(changes) {}

  void note() {
    if (before_.versions != after_.versions)
      say(false, "version {} is now {}", before_.versions.empty() ? "(unknown)" : before_.versions,
          after_.versions.empty() ? "(unknown)" : after_.versions);
    const std::map<std::string, std::string> failed_before = failures(before_),
                                             failed_after = failures(after_);
    std::vector<std::string> fixed, gone, fresh, broken;
    for (const auto& [line, what] : failed_before) {
      if (failed_after.contains(line)) continue;
      (after_.passing.contains(line) ? fixed : gone).push_back(line);
    }
    for (const auto& [line, what] : failed_after) {
      if (failed_before.contains(line)) continue;
      (before_.passing.contains(line) ? broken : fresh).push_back(line);
    }
    list(false, "failed before and passes now", "failed before and pass now", fixed);
    list(false, "failed before and was not run again", "failed before and were not run again", gone);
    list(true, "passed before and fails now", "passed before and fail now", broken);
    list(true, "fails and was not recorded before", "fail and were not recorded before", fresh);
    const auto grown = [](double a, double b) { return std::isfinite(a) && std::isfinite(b) && b > 2.0 * a; };
    if (grown(before_.worst, after_.worst))
      say(true, "worst ratio {:.3g} is now {:.3g}: {}", before_.worst, after_.worst, after_.worst_line);
    if (grown(after_.worst, before_.worst))
      say(false, "worst ratio {:.3g} is now {:.3g}", before_.worst, after_.worst);
    if (before_.passed > 0 && after_.passed == 0)
      say(true, "none of {} passes; {} did", counted(after_.cases, "case"), before_.passed);
    if (after_.cases * 2 < before_.cases)
      say(false, "{}, {} before", counted(after_.cases, "case"), before_.cases);
  }

 private:
  static std::map<std::string, std::string> failures(const BoardRow& row) {
    std::map<std::string, std::string> out;
    for (const BoardDefect& defect : row.defects) {
      for (const std::string& line : defect.lines) out.emplace(line, defect.what);
    }
    return out;
  }
  template <class... Arguments>
  void say(bool worse, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    changes_.push_back({after_.kernel, after_.device, after_.contract,
                        fmt::format(text, std::forward<Arguments>(arguments)...), worse});
  }
  void list(bool worse, std::string_view one, std::string_view several,
            const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    say(worse, "{} {}: {}{}", counted(std::ssize(lines), "case"), lines.size() == 1 ? one : several,
        lines.size() == 1 ? "" : "first ", lines.front());
  }

  const BoardRow& before_;
  const BoardRow& after_;
  std::vector<BoardChange>& changes_;
};

/// Returns the newest row of each kernel, device and contract: of several versions, that of the last run. A
/// board read from a file knows no order of runs beyond their dates.
std::map<std::tuple<std::string, std::string, std::string>, const BoardRow*> newest_rows(const Board& board) {
  std::map<std::tuple<std::string, std::string, std::string>, const BoardRow*> out;
  for (const BoardRow& row : board.rows) {
    const BoardRow*& kept = out[{row.kernel, row.device, row.contract}];
    if (kept == nullptr || std::tie(kept->date, kept->order) <= std::tie(row.date, row.order)) kept = &row;
  }
  return out;
}

/// Returns the *.jsonl files of a folder, sorted by name.
std::vector<std::filesystem::path> records_in(const std::filesystem::path& folder) {
  std::error_code code;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jsonl") continue;
    // Reading a pipe would wait for ever.
    if (!entry.is_regular_file(code))
      throw Error(fmt::format("{}: no regular file; take it out of the folder", entry.path().string()));
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

/// Reads the records of a file; missing records become a note of the board.
RecordFile checked_records(const std::filesystem::path& path, const std::function<void(const Record&)>& check,
                           Board& board) {
  RecordFile file = read_json_lines(path);
  const std::string name = path.filename().string();
  for (std::size_t i = 0; check && i < file.records.size(); ++i) {
    try {
      check(file.records[i]);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: damaged, case {}: {}; take the file out, or record it anew", path.string(),
                              file.places[i].number, error.what()));
    }
  }
  const std::size_t noted = board.notes.size();
  if (file.records.empty() && file.timings.empty()) board.notes.push_back(name + ": no case in it");
  for (const std::string& sentence : shortcomings(file)) board.notes.push_back(name + ": " + sentence);
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    if (!file.places[i].ended)
      board.notes.push_back(name + ": was started and never ended: " + file.records[i].line);
  }
  board.incomplete += board.notes.size() > noted ? 1 : 0;
  return file;
}

/// Checks the lines that a digest kept for a row.
void check_lines(const BoardRow& row, const std::function<void(const Record&)>& check) {
  Record record;
  record.kernel = row.kernel;
  const auto require = [&](const std::string& line) {
    record.line = line;
    try {
      check(record);
    } catch (const Error& error) {
      throw Error(fmt::format("a damaged digest, kernel {}: {}; make it anew with `samestate board --json`",
                              row.kernel, error.what()));
    }
  };
  if (!row.worst_line.empty()) require(row.worst_line);
  for (const BoardDefect& defect : row.defects) std::ranges::for_each(defect.lines, require);
}

/// Returns the board of records alone; `before` is the board of digests, which are older than the runs.
Board board_of(const std::vector<RecordFile>& files, const Board& before) {
  // Runs in order of their dates; runs of the same date in order of their files' names.
  struct Part {
    const RecordFile* file;
    std::size_t run;
  };
  std::vector<Part> parts;
  Board board;
  for (const RecordFile& file : files) {
    std::ranges::move(timings_of(file, ""), std::back_inserter(board.timings));
    for (std::size_t i = 0; i < file.runs.size(); ++i) parts.push_back({&file, i});
  }
  std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.file->runs[part.run].date; });
  std::map<BoardKey, std::map<std::string, Newest>> lines;
  std::map<BoardKey, BoardRow> rows;
  // They come after the runs of digests, which are older.
  std::int64_t order = 0;
  for (const BoardRow& row : before.rows) order = std::max(order, row.order);
  for (const auto& [file, number] : parts) {
    ++order;
    const Run& run = file->runs[number];
    std::set<BoardKey> of_run;
    for (std::size_t i = 0; i < file->records.size(); ++i) {
      const Record& r = file->records[i];
      // A process that was ended from outside says nothing about its kernel.
      if (file->places[i].run != number || !file->places[i].ended || r.judgement.verdict == Verdict::skipped)
        continue;
      const BoardKey key = key_of(run, r);
      lines[key][r.line] = {&r, &run};
      of_run.insert(key);
    }
    for (const BoardKey& key : of_run) {
      BoardRow& row = rows[key];
      if (!run.date.empty()) row.date = run.date;
      row.driver = run.driver;
      row.toolkit = run.toolkit;
      row.order = order;
      // The plan belongs to a run, whose records may have several contracts.
      if (of_run.size() == 1) row.planned += run.planned;
    }
  }
  for (auto& [key, row] : rows) {
    std::tie(row.kernel, row.versions, row.device, row.contract, row.sources) = key;
    std::vector<double> ratios;
    std::vector<Record> records;
    for (const auto& [line, newest] : lines[key]) {
      add(row, *newest.record);
      records.push_back(*newest.record);
      if (newest.record->judgement.verdict == Verdict::pass) ratios.push_back(newest.record->judgement.ratio);
    }
    row.defects = defects_of(records);
    if (!ratios.empty()) {
      std::ranges::sort(ratios);
      const std::size_t half = ratios.size() / 2;
      row.median = ratios.size() % 2 == 1 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2.0;
    }
    board.rows.push_back(std::move(row));
  }
  return board;
}

BoardKey key_of(const BoardRow& row) {
  return {row.kernel, row.versions, row.device, row.contract, row.sources};
}

/// Adds rows and timings. A digest's records are gone, so if two rows have one key only the newer one counts,
/// and `from`'s if both have one date.
void combine(Board& board, Board from) {
  for (BoardRow& row : from.rows) {
    const auto same = std::ranges::find(board.rows, key_of(row), [](const BoardRow& r) { return key_of(r); });
    if (same == board.rows.end()) {
      board.rows.push_back(std::move(row));
    } else if (same->date <= row.date) {
      *same = std::move(row);
    }
  }
  std::ranges::move(from.notes, std::back_inserter(board.notes));
  board.incomplete += from.incomplete;
  std::ranges::move(from.timings, std::back_inserter(board.timings));
  std::ranges::stable_sort(board.timings, {}, &TimedEvidence::date);
  board.timings = latest_timings(board.timings);
  std::ranges::stable_sort(board.rows, {}, [](const BoardRow& row) { return key_of(row); });
}

/// Drops runs of sources that no longer exist once newer ones ran on the same device under the same contract.
void drop_superseded(Board& board) {
  const auto newest = newest_rows(board);
  std::erase_if(board.rows, [&](const BoardRow& row) {
    const BoardRow& last = *newest.at({row.kernel, row.device, row.contract});
    return !row.sources.empty() && !last.sources.empty() && row.sources != last.sources;
  });
}

}  // namespace

void mark_newest(Board& board) {
  const auto newest = newest_rows(board);
  for (BoardRow& row : board.rows) row.newest = newest.at({row.kernel, row.device, row.contract}) == &row;
}

Board read_board(std::span<const std::filesystem::path> folders,
                 const std::function<void(const Record&)>& check) {
  Board board;
  std::vector<RecordFile> files;
  for (const std::filesystem::path& folder : folders) {
    if (!std::filesystem::is_directory(folder)) {
      combine(board, read_digest(folder));
      continue;
    }
    for (const std::filesystem::path& path : records_in(folder))
      files.push_back(checked_records(path, check, board));
    for (Digest& digest : digests_in(folder)) combine(board, std::move(digest.board));
  }
  if (check) {
    for (const BoardRow& row : board.rows) check_lines(row, check);
  }
  combine(board, board_of(files, board));
  if (board.rows.empty() && board.timings.empty())
    throw Error(fmt::format(
        "{}: no case in its .jsonl files, and no digest; name a folder that holds what `gate --jsonl` wrote",
        fmt::join(folders | std::views::transform([](const auto& f) { return f.string(); }), ", ")));
  drop_superseded(board);
  mark_newest(board);
  return board;
}

std::vector<BoardChange> board_changes(const Board& before, const Board& after) {
  std::vector<BoardChange> changes;
  const auto old = newest_rows(before), now = newest_rows(after);
  std::set<const BoardRow*> renamed;
  for (const auto& [key, row] : now) {
    const auto at = old.find(key);
    if (at != old.end()) {
      Differences(*at->second, *row, changes).note();
      continue;
    }
    // A contract's card is part of its name.
    const std::string bare = row->contract.substr(0, row->contract.find("+card:nearest"));
    const auto same = std::ranges::find_if(old, [&](const auto& o) {
      const BoardRow& other = *o.second;
      return other.kernel == row->kernel && other.device == row->device && other.contract != row->contract &&
             !now.contains(o.first) &&
             (other.contract.starts_with(bare) || row->contract.starts_with(other.contract));
    });
    if (same != old.end()) renamed.insert(same->second);
    changes.push_back({row->kernel, row->device, row->contract,
                       same == old.end()
                           ? fmt::format("new: {}, {} failed", counted(row->cases, "case"), row->failed)
                           : fmt::format("contract {} is now {}", same->second->contract, row->contract),
                       row->failed > 0});
  }
  for (const auto& [key, row] : old) {
    if (!now.contains(key) && !renamed.contains(row))
      changes.push_back({row->kernel, row->device, row->contract,
                         fmt::format("not recorded any more: {} before", counted(row->cases, "case")),
                         false});
  }
  std::ranges::stable_sort(changes, {}, [](const BoardChange& c) { return !c.worse; });
  return changes;
}

}  // namespace samestate
