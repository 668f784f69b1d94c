#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "oracles/verdict.h"

/// The definitions that the laws of both kinds of calls share.
namespace samestate {

/// How many requests the law `serving` may begin again.
inline constexpr int kRestarts = 2;

/// The first value of fnv_of: FNV-1a over data, so that the same data are served by the same program.
inline constexpr std::uint64_t kNoData = 0xcbf29ce484222325U;
[[nodiscard]] inline std::uint64_t fnv_of(std::span<const float> data, std::uint64_t hash = kNoData) {
  for (const float x : data) hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001b3U;
  return hash;
}

/// Returns the judgement of a law that says nothing about a case, for the reason given.
[[nodiscard]] inline Judgement law_says_nothing(std::string reason) {
  Judgement j;
  j.gate = "law";
  j.reason = std::move(reason);
  return j;
}

/// The reason why causality says nothing about a run.
inline constexpr const char* kFutureIdle = "the changed future changed nothing at all";

/// Returns the judgement, made vacuous if what the law changes had no effect, because then it would pass
/// whatever the kernel does.
[[nodiscard]] inline Judgement if_effective(Judgement j, bool effect, const char* otherwise) {
  if (effect || j.verdict != Verdict::pass) return j;
  j.verdict = Verdict::vacuous;
  j.reason = otherwise;
  return j;
}

}  // namespace samestate
