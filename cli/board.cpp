#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "harness/cases/resolved.h"
#include "reference/error.h"
#include "reports/page/html_board.h"
#include "reports/records/board.h"
#include "reports/records/digest.h"
#include "reports/records/files.h"
#include "reports/text/board_text.h"

namespace samestate::cli {
namespace {

struct BoardOptions {
  std::vector<std::string> folders;
  std::string since, html, markdown, title = "samestate board";
  bool json = false;
};

/// Throws Error if the record's line is not a case.
void require_case(const Record& record) { (void)Resolved(parse_case(record.line)); }

int run_board(const BoardOptions& options) {
  require_different({{"--html", options.html}, {"--markdown", options.markdown}});
  const std::vector<std::filesystem::path> folders(options.folders.begin(), options.folders.end());
  const Board board = read_board(folders, require_case);
  const bool compared = !options.since.empty();
  std::vector<BoardChange> changes;
  if (compared) changes = board_changes(read_board(options.since, require_case), board);
  const std::string page = board_markdown(board, changes, compared);
  if (!options.html.empty())
    write_atomically(options.html, board_html(board, changes, compared, options.title));
  if (!options.markdown.empty()) write_atomically(options.markdown, page);
  if (options.json) {
    fmt::print("{}", board_json(board, changes));
  } else if (options.html.empty() && options.markdown.empty()) {
    fmt::print("{}", page);
  } else {
    for (const std::string* file : {&options.html, &options.markdown}) {
      if (!file->empty()) fmt::print("{}: {} rows, {} changes\n", *file, board.rows.size(), changes.size());
    }
  }
  return std::ranges::any_of(changes, &BoardChange::worse) ? kFail : kPass;
}

}  // namespace

Command add_board(CLI::App& app) {
  auto options = std::make_shared<BoardOptions>();
  app.footer(
      "One table of all gates that were recorded into folders (gate --jsonl DIR/NAME.jsonl). It "
      "has one row per kernel,\n"
      "versions of its packages (for a file its hash), device and contract, with verdicts, the "
      "median ratio of the passes, the\n"
      "worst ratio, the card and the date, followed by the known defects, grouped as in the gate's "
      "summary, each with its\n"
      "smallest case. If several runs have a case, the newest run counts; a case that was started "
      "and never ended becomes a\n"
      "remark.\n"
      "\n"
      "  samestate board peers                             Markdown, printed\n"
      "  samestate board peers --html board.html           one page\n"
      "  samestate board peers --json > board.json         a digest, to be kept in place of the records\n"
      "  samestate board board.json new --json > both.json    a digest with the runs in `new`, which replace "
      "their rows\n"
      "  samestate board peers --since board.json          and what changed since\n\n"
      "The exit code is 0, or 1 if something is worse than in --since, or 2 for bad input: a file that is "
      "not a record "
      "or is damaged, or a folder\n"
      "without a case.");
  app.add_option("folder", options->folders, "folders of records and digests, or digests")
      ->required()
      ->check(named());
  app.add_option("--since", options->since, "an older folder, or a digest of it: report what changed since")
      ->check(named());
  app.add_option("--html", options->html, "write the table as a web page")->check(named());
  app.add_option("--markdown", options->markdown, "write the table as Markdown")->check(named());
  app.add_option("--title", options->title, "heading of the page")->capture_default_str();
  app.add_flag("--json", options->json, "machine-readable");
  return [options] { return run_board(*options); };
}

}  // namespace samestate::cli
