#include "harness/records/hash.h"

#include <fmt/format.h>

#include <sstream>

namespace samestate {

std::uint64_t hash_of(std::string_view text, std::uint64_t so_far) {
  for (const char c : text) so_far = (so_far ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return so_far;
}

std::string PlanHash::text() const { return fmt::format("{:016x}", hash_); }

std::string first_difference(const std::string& a, const std::string& b) {
  if (a == b) return "";
  std::istringstream of_a(a), of_b(b);
  std::string x, y;
  while (true) {
    const bool first = static_cast<bool>(of_a >> x);
    const bool second = static_cast<bool>(of_b >> y);
    if (!first && !second) return "";
    if (first && second && x == y) continue;
    const std::string& differing = first ? x : y;
    return differing.substr(0, differing.rfind(':'));
  }
}

}  // namespace samestate
