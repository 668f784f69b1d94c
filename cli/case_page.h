#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

#include "harness/explain/explain.h"
#include "harness/records/record.h"
#include "harness/run/kernel_table.h"
#include "reports/text/case_json.h"

/// These functions print one case for `repro` and `judge`.
namespace samestate::cli {

/// A page of text that grows line by line.
class Page {
 public:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Verdict, gates, the worst place and stages.
void add_record(Page& page, const Record& record);
void add_explanation(Page& page, const Explanation& e);

/// A page about a case and its verdict's exit code, as one text that a worker returns; behind the code a file of the run,
/// where its contract is to be asked about. `open`: a deeper look may say more.
[[nodiscard]] std::string with_code(const std::string& page, Verdict verdict, const std::string& left = "",
                                    bool open = false);

/// The page of a record alone; as JSON where asked.
[[nodiscard]] std::string record_page(const Record& record, bool json);

/// An explanation as the lists that a program reads.
[[nodiscard]] CaseExplanation lists_of(const Explanation& e);

struct PageOptions {
  double timeout = 0.0;  ///< seconds for `body`; 0: no limit
  bool json = false;
  double card_budget = 0.0;            ///< seconds for the contracts near the run (print_neighbours)
  const KernelTable* table = nullptr;  ///< of these
  Judgement* loss = nullptr;  ///< if it is not null, it is set to what became of a process that was lost
  std::function<Record()> deeper =
      {};  ///< a second, deeper look, where the page says that it may say more; empty: none
};

/// Prints the page that `body` makes in a process of its own, or `planned` with the verdict of what became of it there; then what
/// a deeper look finds, and the contracts near the run. Returns the exit code, which is that of the page, or of a failure that the
/// deeper look finds.
[[nodiscard]] int print_apart(const std::function<std::string()>& body,
                              const std::function<Record()>& planned, const PageOptions& options);

}  // namespace samestate::cli
