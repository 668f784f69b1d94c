#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace samestate {

/// 64-bit FNV-1a; `so_far` is the hash of the text before this one.
[[nodiscard]] std::uint64_t hash_of(std::string_view text, std::uint64_t so_far = 0xcbf29ce484222325U);

/// The hash of a plan, case by case in its order, by which the parts of a run identify the whole that they
/// belong to.
class PlanHash {
 public:
  /// Adds a case line and the kernel that it runs on; for a sweep, series and curve with the line.
  void add(std::string_view line, std::string_view of) {
    hash_ = hash_of("\n", hash_of(of, hash_of("\t", hash_of(line, hash_))));
  }
  /// 16 hexadecimal digits.
  [[nodiscard]] std::string text() const;

 private:
  std::uint64_t hash_ = hash_of("");
};

/// The first output whose hash differs between two texts of output hashes, "o:0123456789abcdef
/// final_state:.." (harness/run/output_hashes.h); empty if all are equal.
[[nodiscard]] std::string first_difference(const std::string& a, const std::string& b);

}  // namespace samestate
