#include "harness/run/collect_spent.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace samestate {
namespace {

thread_local CollectSpent* collecting = nullptr;

}  // namespace

CollectSpent::CollectSpent() : outer_(collecting) { collecting = this; }

CollectSpent::~CollectSpent() { collecting = outer_; }

void CollectSpent::note(const Spent& more) {
  if (collecting != nullptr) collecting->spent_ += more;
}

void CollectSpent::note_tuned(std::string_view by, const std::string& configuration) {
  if (collecting == nullptr || by.empty()) return;
  collecting->by_ = by;
  auto& known = collecting->configurations_;
  if (std::ranges::find(known, configuration) == known.end()) known.push_back(configuration);
}

std::string CollectSpent::tuned() const {
  return configurations_.empty() ? "" : fmt::format("{}: {}", by_, fmt::join(configurations_, "; "));
}

}  // namespace samestate
