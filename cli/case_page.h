#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

#include "harness/explain/explain.h"
#include "harness/records/record.h"
#include "harness/run/kernel_table.h"
#include "reports/text/case_json.h"

/// Prints one case for `repro` and `judge`.
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

/// Adds verdict, gates, the worst place and stages.
void add_record(Page& page, const Record& record);
void add_explanation(Page& page, const Explanation& e);

/// A page about a case and the exit code of its verdict, as one text that a worker returns; after the code, a
/// file of the run if its contract is to be examined. `open`: a deeper look may find more.
[[nodiscard]] std::string with_code(const std::string& page, Verdict verdict, const std::string& left = "",
                                    bool open = false);

/// The page for a record alone; as JSON if requested.
[[nodiscard]] std::string record_page(const Record& record, bool json);

/// An explanation as the lists that a program reads.
[[nodiscard]] CaseExplanation lists_of(const Explanation& e);

struct PageOptions {
  double timeout = 0.0;  ///< seconds for `body`; 0 means no limit
  bool json = false;
  double card_budget = 0.0;  ///< seconds for the search of contracts near the run (print_neighbours)
  const KernelTable* table = nullptr;  ///< the kernels for that search
  Judgement* loss = nullptr;           ///< if not null, it receives the judgement of a process that was lost
  std::function<Record()> deeper =
      {};  ///< a second, deeper look, used if the page says that it may find more; empty for none
};

/// Prints the page that `body` makes in a process of its own, or `planned` with the verdict of its end; then
/// the findings of a deeper look, and the contracts near the run. Returns the exit code, which is that of the
/// page, or of a failure that the deeper look finds.
[[nodiscard]] int print_apart(const std::function<std::string()>& body,
                              const std::function<Record()>& planned, const PageOptions& options);

}  // namespace samestate::cli
