#pragma once

#include <cstdint>
#include <vector>

#include "oracles/batch.h"

/// The changes to a batch from which the laws are built. Tensors are row-major (oracles/batch.h).
namespace samestate {

/// The tokens [begin, end) of every sequence of a dense batch. The caller sets another initial state.
[[nodiscard]] Batch tokens_of(const Batch& batch, std::int64_t begin, std::int64_t end);

/// Sequence n of a dense or packed batch, as a dense batch with B = 1.
[[nodiscard]] Batch sequence_alone(const Batch& batch, std::int64_t n);

/// A dense batch with its rows in the order given by `order` [B].
[[nodiscard]] Batch permuted_rows(const Batch& batch, const std::vector<std::int64_t>& order);

/// The batch with key heads in the order given by `order` [Hk] and value heads moved along with the key head
/// that serves them; `value_order` receives the old index of each new value head.
[[nodiscard]] Batch permuted_heads(const Batch& batch, const std::vector<std::int64_t>& order,
                                   std::vector<std::int64_t>& value_order);

/// Only the value heads `heads`, in that order, each with a copy of the key head that serves it: Hk = Hv.
/// Throws Error as key_head does.
[[nodiscard]] Batch heads_of(const Batch& batch, const std::vector<std::int64_t>& heads);

/// The rows of a dense batch end to end as one packed batch, with empty sequences before, between and after
/// them.
[[nodiscard]] Batch packed_of(const Batch& batch);

/// Sets token t of batch row b to a no-op: q = k = v = 0, beta = 0, g = 0.
void make_no_op(Batch& batch, std::int64_t b, std::int64_t t);

}  // namespace samestate
