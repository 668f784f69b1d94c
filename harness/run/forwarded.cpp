#include "harness/run/forwarded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace samestate {
namespace {

thread_local Forwarded* collecting = nullptr;

}  // namespace

Forwarded::Forwarded() : outer_(collecting) { collecting = this; }

Forwarded::~Forwarded() { collecting = outer_; }

void Forwarded::note(std::string_view function) {
  if (collecting == nullptr || function.empty()) return;
  auto& functions = collecting->functions_;
  if (std::ranges::find(functions, function) == functions.end()) functions.emplace_back(function);
}

std::string Forwarded::text() const { return fmt::format("{}", fmt::join(functions_, ", ")); }

}  // namespace samestate
