#include "cli/run_file.h"

#include "reference/error.h"

namespace samestate::cli {

RunFile::RunFile(const std::string& path, const Run& run, JsonLinesWriter::Mode mode) {
  if (!path.empty()) lines_ = std::make_unique<JsonLinesWriter>(path, run, mode);
}

template <class Write>
void RunFile::attempt(Write&& write) {
  if (lines_ == nullptr || !lost_.empty()) return;
  try {
    write();
  } catch (const Error& error) {
    lost_ = error.what();
  }
}

void RunFile::start(const Record& planned, std::int64_t number) {
  attempt([&] { lines_->start(planned, number); });
}

void RunFile::end(std::int64_t number, const Record& record) {
  attempt([&] { lines_->end(number, record); });
}

void RunFile::point(const Measurement& measurement, std::int64_t number) {
  attempt([&] { lines_->point(measurement, number); });
}

void RunFile::finish(const RunEnd& end) {
  attempt([&] { lines_->finish(end); });
}

}  // namespace samestate::cli
