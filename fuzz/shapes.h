#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "harness/run/kernel_table.h"
#include "oracles/laws/law.h"

/// What plan and search make of a case of the recurrent family once its sizes are drawn; `below(n)` draws
/// 0..n-1.
namespace samestate::shapes {

/// Work of a case in state updates, B Hv T dk dv, and of one of named tensors in multiplications, which its
/// running error makes about thirty times as dear.
inline constexpr double kLargestFamilyWork = 3e6;
inline constexpr double kLargestTensorWork = 4e5;

/// Tokens times elements of weights and of one token's data: roughly the multiplications of a case of named
/// tensors.
[[nodiscard]] double tensor_work(const Case& c);

/// At most nine sequences, empty ones among them, of c.T tokens together.
template <class Below>
void as_packed(Case& c, bool chunked, Below&& below) {
  c.form = "packed";
  c.B = 1;
  if (!chunked) c.chunk = 0;
  const std::int64_t most = std::max<std::int64_t>(c.T / 2, 1);
  std::int64_t left = c.T;
  while (left > 0 && c.lengths.size() < 8) {
    const std::int64_t next = below(4) == 0 ? 0 : std::min(left, 1 + below(most));
    c.lengths.push_back(next);
    left -= next;
  }
  c.lengths.push_back(left);
}

template <class Below>
void as_decode(Case& c, bool chunked, Below&& below) {
  c.form = "decode";
  c.T = std::min<std::int64_t>(c.T, 80);
  c.prefill = below(c.T + 1);
  if (!chunked) c.chunk = 0;
}

/// A law and sizes on which it can bite. `plain` is the contract where that of the case has a state in low
/// precision, whose worst case is vacuous after a few tokens, so that no law can be judged with it.
void as_law(Case& c, const Law& law, const std::string& plain);

}  // namespace samestate::shapes
