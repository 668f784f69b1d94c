#pragma once

#include "reference/costs/counts.h"

namespace samestate::costs {

/// Operations of softmax attention on one sequence in which token t sees tokens 0..t: Q K^T and P V over L (L
/// + 1) / 2 pairs take L (L + 1) (dk + dv) per head. The exponentials are not counted (COST-3).
[[nodiscard]] inline Count causal_attention_flops(Count length, Count heads, Count key_width,
                                                  Count value_width) {
  return product({length, length + 1, heads, sum({key_width, value_width})});
}

}  // namespace samestate::costs
