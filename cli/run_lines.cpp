#include "cli/run_lines.h"

#include "reference/error.h"

namespace samestate::cli {

RunLines::RunLines(const std::string& path, const Run& run, JsonLinesWriter::Mode mode) {
  if (!path.empty()) lines_ = std::make_unique<JsonLinesWriter>(path, run, mode);
}

template <class Write>
void RunLines::attempt(Write&& write) {
  if (lines_ == nullptr || !lost_.empty()) return;
  try {
    write();
  } catch (const Error& error) {
    lost_ = error.what();
  }
}

void RunLines::start(const Record& planned, std::int64_t number) {
  attempt([&] { lines_->start(planned, number); });
}

void RunLines::end(std::int64_t number, const Record& record) {
  attempt([&] { lines_->end(number, record); });
}

void RunLines::point(const Measurement& measurement, std::int64_t number) {
  attempt([&] { lines_->point(measurement, number); });
}

void RunLines::finish(const RunEnd& end) {
  attempt([&] { lines_->finish(end); });
}

}  // namespace samestate::cli
