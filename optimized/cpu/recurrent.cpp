#include "optimized/cpu/recurrent.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "optimized/cpu/emulated_sums.h"
#include "optimized/cpu/fused_sums.h"
#include "optimized/cpu/rounding.h"

namespace samestate::cpu {
namespace {

/// Returns the width of the scratch for `columns` value columns: the next width for which FusedSums has
/// registers.
std::int64_t padded_width(std::int64_t columns) {
  std::int64_t width = kLanes;
  while (width < columns) width *= 2;
  return width;
}

struct Scratch {
  std::vector<float> state;  ///< [dk, width]
  std::vector<float> q, k;   ///< [dk]
};

/// Runs columns [first, first + columns) of one head token by token. Padding columns stay zero.
template <bool delta, class Sums>
void recur(const Sums& sums, const Head& head, std::int64_t first, std::int64_t columns,
           const Arguments& arguments, const Contract& contract, Scratch& scratch) {
  const std::int64_t dk = head.dk;
  const std::int64_t width = padded_width(columns);
  scratch.state.assign(static_cast<std::size_t>(dk * width), 0.0F);
  scratch.q.resize(static_cast<std::size_t>(dk));
  scratch.k.resize(static_cast<std::size_t>(dk));
  float* const S = scratch.state.data();
  float* const q = scratch.q.data();
  float* const k = scratch.k.data();
  std::array<float, kStateColumns> v{};
  std::array<float, kStateColumns> read{};
  std::array<float, kStateColumns> u{};
  std::array<float, kStateColumns> old{};  ///< S^T q before the token
  std::array<float, kStateColumns> o{};

  if (head.initial_state.data) {
    for (std::int64_t l = 0; l < dk; ++l) head.initial_state.load(l, first, columns, S + l * width);
  }
  for (std::int64_t t = 0; t < head.tokens; ++t) {
    load_key(head.q, t, dk, arguments.l2norm, contract.qk, q);
    load_key(head.k, t, dk, arguments.l2norm, contract.qk, k);
    for (std::int64_t l = 0; l < dk; ++l) q[l] *= arguments.scale;
    head.v.load(t, first, columns, v.data());
    const float decay = head.g.data ? exponential(*head.g.row(t), contract.exponential) : 1.0F;
    const float beta = head.beta.data ? *head.beta.row(t) : 1.0F;

    if (contract.reads_old_state) {
      sums.read(q, 1.0F, S, dk, width, old.data());
    }
    float* const written = delta ? u.data() : v.data();
    if constexpr (delta) {
      sums.read(k, contract.reads_old_state ? 1.0F : decay, S, dk, width, read.data());
      const float outside = contract.reads_old_state ? decay : 1.0F;
      for (std::int64_t c = 0; c < width; ++c) u[c] = beta * (v[c] - outside * read[c]);
    }
    sums.write(k, written, q, decay, S, dk, width, o.data());
    if (contract.reads_old_state) {
      const float of_key = sums.dot(q, k, dk);
      for (std::int64_t c = 0; c < width; ++c) o[c] = decay * old[c] + written[c] * of_key;
    }

    round_values(o.data(), o.data(), columns, contract.output);
    head.o.store(t, first, columns, o.data());
    if (!keeps_fp32(contract.state)) round_values(S, S, dk * width, contract.state);
  }
  if (head.final_state.data) {
    for (std::int64_t l = 0; l < dk; ++l) head.final_state.store(l, first, columns, S + l * width);
  }
}

template <bool delta, class Sums>
void run_heads(const Sums& sums, const Arguments& arguments, const Contract& contract, const Sizes& sizes) {
  const std::int64_t blocks = round_up(sizes.dv, kStateColumns) / kStateColumns;
  for_each_task(sizes.sequences * sizes.value_heads * blocks, arguments.threads, [&] {
    return [&, scratch = Scratch{}](std::int64_t task) mutable {
      const std::int64_t head = task / blocks;
      const std::int64_t first = task % blocks * kStateColumns;
      recur<delta>(sums, head_of(arguments, sizes, head / sizes.value_heads, head % sizes.value_heads), first,
                   std::min(kStateColumns, sizes.dv - first), arguments, contract, scratch);
    };
  });
}

template <class Sums>
Outcome run(const Sums& sums, const System& system, const Arguments& arguments, const Contract& contract) {
  const Sizes sizes = checked_sizes(arguments);
  if (std::string reason = unsupported_reason(system, arguments, contract); !reason.empty()) {
    return {Outcome::Kind::unsupported, std::move(reason)};
  }
  if (system.delta) {
    run_heads<true>(sums, arguments, contract, sizes);
  } else {
    run_heads<false>(sums, arguments, contract, sizes);
  }
  return {};
}

}  // namespace

template <const System& system>
Outcome run_recurrent(const Arguments& arguments, const Contract& contract) {
  return run(FusedSums{}, system, arguments, contract);
}
template Outcome run_recurrent<GATED_DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_recurrent<DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_recurrent<RETENTION>(const Arguments&, const Contract&);
template Outcome run_recurrent<LINEAR_ATTENTION>(const Arguments&, const Contract&);

Outcome run_recurrent_twin(const System& system, const Arguments& arguments, const Contract& contract) {
  return run(EmulatedSums{contract.accumulator}, system, arguments, contract);
}

}  // namespace samestate::cpu
