#include "harness/records/hash.h"

#include <fmt/format.h>

namespace samestate {

std::uint64_t hash_of(std::string_view text, std::uint64_t so_far) {
  for (const char c : text) so_far = (so_far ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return so_far;
}

std::string PlanHash::text() const { return fmt::format("{:016x}", hash_); }

}  // namespace samestate
