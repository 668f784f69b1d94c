#include "harness/run/forwarded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace samestate {
namespace {

thread_local Forwarded* collecting_forwarded = nullptr;

}  // namespace

Forwarded::Forwarded() : outer_(collecting_forwarded) { collecting_forwarded = this; }

Forwarded::~Forwarded() { collecting_forwarded = outer_; }

void Forwarded::note(std::string_view function) {
  if (collecting_forwarded == nullptr || function.empty()) return;
  auto& functions = collecting_forwarded->functions_;
  if (std::ranges::find(functions, function) == functions.end()) functions.emplace_back(function);
}

std::string Forwarded::text() const { return fmt::format("{}", fmt::join(functions_, ", ")); }

}  // namespace samestate
