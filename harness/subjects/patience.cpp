#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "fixtures/quote.h"
#include "harness/subjects/subject.h"
#include "reference/error.h"

namespace samestate {
namespace {

double seconds_in(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value > 0.0) || !std::isfinite(value))
    throw Error(fmt::format("{}={}: seconds above 0, as in {}=300", name, quote(text, 40), name));
  return value;
}

}  // namespace

SubjectPatience patience_of_environment() {
  SubjectPatience patience;
  patience.start = seconds_in("SAMESTATE_START_TIMEOUT", patience.start);
  patience.call = seconds_in("SAMESTATE_CALL_TIMEOUT", patience.call);
  const double processes = seconds_in("SAMESTATE_SUBJECTS", 0.0);
  constexpr double kMostProcesses = 1024.0;
  if (processes > kMostProcesses || processes != std::floor(processes))
    throw Error(
        fmt::format("SAMESTATE_SUBJECTS={}: a number of processes, 1 to {:g}", processes, kMostProcesses));
  patience.processes = static_cast<int>(processes);
  if (const char* log = std::getenv("SAMESTATE_SUBJECT_LOG"); log != nullptr) patience.log = log;
  return patience;
}

}  // namespace samestate
