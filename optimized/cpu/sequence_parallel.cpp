#include "optimized/cpu/sequence_parallel.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "optimized/cpu/chunked.h"
#include "optimized/cpu/chunked_head.h"
#include "optimized/cpu/emulated_sums.h"
#include "optimized/cpu/fused_sums.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

/// Returns a dense matrix of scratch memory, in the form of the states and values of a Head.
template <class T>
Rows<T> dense_rows(T* data, std::int64_t columns) {
  return {data, columns, 1};
}

template <bool delta, bool decay, class Sums>
class Ranks {
 public:
  Ranks(const Sums& sums, const Arguments& arguments, const Contract& contract, const Sizes& sizes,
        const TaskOrder& order)
      : sums_(sums), arguments_(arguments), contract_(contract), sizes_(sizes), order_(order) {
    const std::vector<std::int64_t> cuts = checked_cuts(arguments, sizes);
    for (std::int64_t n = 0; n < sizes.sequences; ++n) {
      first_.push_back(parts_.size());
      for (const Part& part : parts_of(arguments, sizes, cuts, n)) parts_.push_back(part);
    }
    first_.push_back(parts_.size());
    maps_.resize(parts_.size() * heads());
    states_.resize(parts_.size() * heads());
  }

  void run() {
    using Worker = ChunkedHead<delta, decay, Sums>;
    std::vector<std::size_t> passing;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].passes_on) passing.push_back(i);
    }
    each(static_cast<std::int64_t>(passing.size()) * sizes_.value_heads, [&] {
      return [&, worker = Worker(sums_, arguments_, contract_), V = std::vector<float>(),
              start = std::vector<float>()](std::int64_t task) mutable {
        map(worker, V, start, passing[static_cast<std::size_t>(task / sizes_.value_heads)],
            task % sizes_.value_heads);
      };
    });
    each(sizes_.sequences * sizes_.value_heads, [&] {
      return [&, S = Block(), M = Block(), product = Block()](std::int64_t task) mutable {
        compose(S, M, product, task / sizes_.value_heads, task % sizes_.value_heads);
      };
    });
    each(static_cast<std::int64_t>(parts_.size()) * sizes_.value_heads, [&] {
      return [&, worker = Worker(sums_, arguments_, contract_)](std::int64_t task) mutable {
        outputs(worker, static_cast<std::size_t>(task / sizes_.value_heads), task % sizes_.value_heads);
      };
    });
  }

 private:
  /// The columns of [M | N] before N: without the delta rule M is a multiple of the identity and only that
  /// number is stored.
  [[nodiscard]] std::int64_t map_columns() const { return delta ? sizes_.dk : 1; }
  [[nodiscard]] std::size_t heads() const { return static_cast<std::size_t>(sizes_.value_heads); }
  [[nodiscard]] std::size_t slot(std::size_t part, std::int64_t h) const {
    return part * heads() + static_cast<std::size_t>(h);
  }

  template <class MakeWork>
  void each(std::int64_t count, const MakeWork& make_work) const {
    if (!order_) return for_each_task(count, arguments_.threads, make_work);
    auto work = make_work();
    for (const std::int64_t task : order_(count)) work(task);
  }

  /// Computes [M | N] of a part from its tokens alone.
  template <class Worker>
  void map(Worker& worker, std::vector<float>& V, std::vector<float>& start, std::size_t part,
           std::int64_t h) {
    const Part& p = parts_[part];
    Head head = tokens_of(head_of(arguments_, sizes_, p.sequence, h), p.begin, p.end);
    const std::int64_t before = map_columns();
    const std::int64_t columns = before + sizes_.dv;
    V.assign(static_cast<std::size_t>(head.tokens * columns), 0.0F);
    for (std::int64_t t = 0; t < head.tokens; ++t)
      head.v.load(t, 0, sizes_.dv, V.data() + t * columns + before);
    start.assign(static_cast<std::size_t>(sizes_.dk * columns), 0.0F);
    for (std::int64_t l = 0; l < before; ++l) start[static_cast<std::size_t>(l * columns + l)] = 1.0F;
    std::vector<float>& out = maps_[slot(part, h)];
    out.resize(start.size());
    head.dv = columns;
    head.v = dense_rows<const float>(V.data(), columns);
    head.initial_state = dense_rows<const float>(start.data(), columns);
    head.final_state = dense_rows<float>(out.data(), columns);
    head.o = {};
    worker.run(head);
  }

  /// Computes the states that reach the parts of a sequence.
  void compose(Block& S, Block& M, Block& product_of, std::int64_t n, std::int64_t h) {
    const std::int64_t dk = sizes_.dk, dv = sizes_.dv, before = map_columns();
    const std::int64_t columns = before + dv;
    const Head head = head_of(arguments_, sizes_, n, h);
    S.resize(dk, dv);
    for (std::int64_t l = 0; l < dk; ++l) {
      if (head.initial_state.data) {
        head.initial_state.load(l, 0, dv, S.row(l));
      } else {
        std::fill_n(S.row(l), dv, 0.0F);
      }
    }
    const auto sequence = static_cast<std::size_t>(n);
    for (std::size_t part = first_[sequence]; part < first_[sequence + 1]; ++part) {
      std::vector<float>& reached = states_[slot(part, h)];
      reached.resize(static_cast<std::size_t>(dk * dv));
      for (std::int64_t l = 0; l < dk; ++l) std::copy_n(S.row(l), dv, reached.data() + l * dv);
      if (!parts_[part].passes_on) break;
      const std::vector<float>& map = maps_[slot(part, h)];
      const auto row = [&](std::int64_t l) { return map.data() + l * columns; };
      if constexpr (delta) {
        M.resize(dk, dk);
        for (std::int64_t l = 0; l < dk; ++l) std::copy_n(row(l), dk, M.row(l));
        product(sums_, M, S, product_of);
      } else {
        product_of.resize(dk, dv);
        for (std::int64_t i = 0; i < S.size(); ++i) product_of.values[i] = map[0] * S.values[i];
      }
      for (std::int64_t l = 0; l < dk; ++l) {
        for (std::int64_t c = 0; c < dv; ++c) S.row(l)[c] = product_of.row(l)[c] + row(l)[before + c];
      }
      round_in_place(S, contract_.state);
    }
  }

  template <class Worker>
  void outputs(Worker& worker, std::size_t part, std::int64_t h) {
    const Part& p = parts_[part];
    Head head = tokens_of(head_of(arguments_, sizes_, p.sequence, h), p.begin, p.end);
    head.initial_state = dense_rows<const float>(states_[slot(part, h)].data(), sizes_.dv);
    if (p.passes_on) head.final_state = {};
    worker.run(head);
  }

  const Sums& sums_;
  const Arguments& arguments_;
  const Contract& contract_;
  const Sizes& sizes_;
  const TaskOrder& order_;
  std::vector<Part> parts_;                 ///< parts of all sequences, in order
  std::vector<std::size_t> first_;          ///< the index of each sequence's first part
  std::vector<std::vector<float>> maps_;    ///< per part and head: [dk, map_columns() + dv]
  std::vector<std::vector<float>> states_;  ///< per part and head: [dk, dv]
};

template <bool delta, bool decay, class Sums>
void run_ranks(const Sums& sums, const Arguments& arguments, const Contract& contract, const Sizes& sizes,
               const TaskOrder& order) {
  Ranks<delta, decay, Sums>(sums, arguments, contract, sizes, order).run();
}

template <class Sums>
Outcome run(const Sums& sums, const System& system, const Arguments& arguments, const Contract& contract,
            const TaskOrder& order = {}) {
  const Sizes sizes = checked_sizes(arguments);
  if (arguments.chunk < 1) {
    throw Error("chunk is " + std::to_string(arguments.chunk) +
                "; the sequence-parallel form needs at least 1");
  }
  if (std::string reason = unsupported_reason(system, arguments, contract); !reason.empty())
    return {Outcome::Kind::unsupported, std::move(reason)};
  if (const std::int64_t longest = std::min(arguments.chunk, longest_sequence(arguments, sizes));
      longest > kLongestChunk) {
    return {Outcome::Kind::unsupported, "a chunk of " + std::to_string(longest) + " tokens; at most " +
                                            std::to_string(kLongestChunk) + ", take a shorter chunk"};
  }
  const bool decay = arguments.g.present();
  if (system.delta) {
    decay ? run_ranks<true, true>(sums, arguments, contract, sizes, order)
          : run_ranks<true, false>(sums, arguments, contract, sizes, order);
  } else {
    decay ? run_ranks<false, true>(sums, arguments, contract, sizes, order)
          : run_ranks<false, false>(sums, arguments, contract, sizes, order);
  }
  return {};
}

}  // namespace

template <const System& system>
Outcome run_sequence_parallel(const Arguments& arguments, const Contract& contract) {
  return run(FusedSums{}, system, arguments, contract);
}
template Outcome run_sequence_parallel<GATED_DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_sequence_parallel<DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_sequence_parallel<RETENTION>(const Arguments&, const Contract&);
template Outcome run_sequence_parallel<LINEAR_ATTENTION>(const Arguments&, const Contract&);

Outcome run_sequence_parallel_in(const System& system, const Arguments& arguments, const Contract& contract,
                                 const TaskOrder& order) {
  return run(FusedSums{}, system, arguments, contract, order);
}

Outcome run_sequence_parallel_twin(const System& system, const Arguments& arguments,
                                   const Contract& contract) {
  return run(EmulatedSums{contract.accumulator}, system, arguments, contract);
}

}  // namespace samestate::cpu
