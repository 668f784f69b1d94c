#include "optimized/cpu/head_parallel.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "optimized/cpu/chunked.h"

namespace samestate::cpu {
namespace {

using Values = std::vector<float>;
using Heads = std::vector<std::int64_t>;

/// Calls of(b, t) for each token that belongs to a sequence: other tokens' rows may hold anything and must
/// not be touched.
template <class OfToken>
void each_token(const Arguments& call, const Sizes& sizes, OfToken&& of) {
  const bool packed = call.cu_seqlens.present();
  const std::int64_t first = packed ? call.cu_seqlens(0) : 0;
  const std::int64_t end = packed ? call.cu_seqlens(sizes.sequences) : sizes.tokens;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t t = first; t < end; ++t) of(b, t);
  }
}

/// One rank: its heads, in memory of its own.
class Rank {
 public:
  Rank(const System& system, const Arguments& call, const Contract& contract, const Sizes& sizes,
       const HeadPart& part)
      : system_(system),
        call_(call),
        contract_(contract),
        sizes_(sizes),
        part_(part),
        count_(part.end - part.begin),
        heads_(static_cast<std::size_t>(count_)) {
    std::iota(heads_.begin(), heads_.end(), part.begin);
  }

  void receive() {
    own_ = call_;
    own_.cuts = {};
    own_.q = copied(call_.q, part_.keys, sizes_.dk, q_);
    own_.k = copied(call_.k, part_.keys, sizes_.dk, k_);
    own_.v = copied(call_.v, heads_, sizes_.dv, v_);
    own_.g = copied(call_.g, g_);
    own_.beta = copied(call_.beta, beta_);
    own_.o = row_major<float, 4>(sized(o_, rows() * count_ * sizes_.dv),
                                 {sizes_.batch, sizes_.tokens, count_, sizes_.dv});
    const std::array<std::int64_t, 4> states{sizes_.sequences, count_, sizes_.dk, sizes_.dv};
    const std::int64_t size = sizes_.sequences * count_ * sizes_.dk * sizes_.dv;
    if (call_.initial_state.present()) {
      own_.initial_state = row_major<const float, 4>(sized(initial_, size), states);
      each_state([&](const float* from, float* to) { std::copy_n(from, sizes_.dv, to); }, call_.initial_state,
                 initial_);
    }
    if (call_.final_state.present()) own_.final_state = row_major<float, 4>(sized(final_, size), states);
  }

  void run(int threads) {
    own_.threads = threads;
    Sizes of_values = sizes_;  // every value head alone, since the table says which key head belongs to it
    of_values.key_heads = 1;
    of_values.value_heads = count_;
    run_chunked_heads(system_, own_, contract_, sizes_.sequences * count_, [&](std::int64_t task) {
      const std::int64_t h = task % count_;
      Head head = head_of(own_, of_values, task / count_, h);
      const std::int64_t key = part_.key_of[static_cast<std::size_t>(h)];
      head.q.data += key * own_.q.stride[2];
      head.k.data += key * own_.k.stride[2];
      return head;
    });
  }

  void gather() const {
    each_token(call_, sizes_, [&](std::int64_t b, std::int64_t t) {
      for (std::int64_t h = 0; h < count_; ++h)
        std::copy_n(&own_.o(b, t, h, 0), sizes_.dv, &call_.o(b, t, part_.begin + h, 0));
    });
    if (call_.final_state.present())
      each_state([&](float* to, const float* from) { std::copy_n(from, sizes_.dv, to); }, call_.final_state,
                 final_);
  }

 private:
  [[nodiscard]] std::int64_t rows() const { return sizes_.batch * sizes_.tokens; }

  /// The size is at least one: a tensor that is present in the call is present in the rank.
  static float* sized(Values& values, std::int64_t size) {
    values.resize(static_cast<std::size_t>(std::max<std::int64_t>(size, 1)));
    return values.data();
  }

  /// Returns a dense copy of those heads of q, k or v.
  View<const float, 4> copied(const View<const float, 4>& from, const Heads& heads, std::int64_t width,
                              Values& to) const {
    const std::int64_t count = std::ssize(heads);
    const View<float, 4> out =
        row_major<float, 4>(sized(to, rows() * count * width), {sizes_.batch, sizes_.tokens, count, width});
    each_token(call_, sizes_, [&](std::int64_t b, std::int64_t t) {
      for (std::int64_t h = 0; h < count; ++h)
        std::copy_n(&from(b, t, heads[static_cast<std::size_t>(h)], 0), width, &out(b, t, h, 0));
    });
    return out;
  }

  /// Returns the rank's part of g or beta; absent if the call has none.
  View<const float, 3> copied(const View<const float, 3>& from, Values& to) const {
    if (!from.present()) return {};
    const View<float, 3> out =
        row_major<float, 3>(sized(to, rows() * count_), {sizes_.batch, sizes_.tokens, count_});
    each_token(call_, sizes_, [&](std::int64_t b, std::int64_t t) {
      for (std::int64_t h = 0; h < count_; ++h) out(b, t, h) = from(b, t, part_.begin + h);
    });
    return out;
  }

  /// Calls of(row of the call, row of the rank) for each row of the rank's states.
  template <class OfRow, class View, class Own>
  void each_state(OfRow&& of, const View& states, Own& own) const {
    auto* row = own.data();
    for (std::int64_t n = 0; n < sizes_.sequences; ++n) {
      for (const std::int64_t h : heads_) {
        for (std::int64_t l = 0; l < sizes_.dk; ++l, row += sizes_.dv) of(&states(n, h, l, 0), row);
      }
    }
  }

  const System& system_;
  const Arguments& call_;
  const Contract& contract_;
  const Sizes& sizes_;
  const HeadPart& part_;
  std::int64_t count_;  ///< number of its value heads
  Heads heads_;         ///< their indices in the call
  Values q_, k_, v_, g_, beta_, initial_, o_, final_;
  Arguments own_;  ///< on its own memory
};

}  // namespace

Outcome run_head_parallel_in(const System& system, const Arguments& arguments, const Contract& contract,
                             const TaskOrder& order) {
  Outcome outcome = chunked_outcome(system, arguments, contract);
  const Sizes sizes = checked_sizes(arguments);
  const std::vector<HeadPart> parts = head_parts_of(arguments, sizes, checked_head_cuts(arguments, sizes));
  if (outcome.kind != Outcome::Kind::ran) return outcome;
  const std::int64_t count = std::ssize(parts);
  // The threads left over after one per rank are used for the heads of each rank.
  const int threads = std::max<int>(1, arguments.threads / static_cast<int>(count));
  const auto rank = [&](std::int64_t i) {
    Rank of(system, arguments, contract, sizes, parts[static_cast<std::size_t>(i)]);
    of.receive();
    of.run(threads);
    of.gather();
  };
  if (order) {
    for (const std::int64_t i : order(count)) rank(i);
  } else {
    for_each_task(count, arguments.threads, [&] { return rank; });
  }
  return outcome;
}

template <const System& system>
Outcome run_head_parallel(const Arguments& arguments, const Contract& contract) {
  return run_head_parallel_in(system, arguments, contract, {});
}
template Outcome run_head_parallel<GATED_DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_head_parallel<DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_head_parallel<RETENTION>(const Arguments&, const Contract&);
template Outcome run_head_parallel<LINEAR_ATTENTION>(const Arguments&, const Contract&);

}  // namespace samestate::cpu
