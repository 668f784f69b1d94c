#include "optimized/cpu/chunked.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "optimized/cpu/chunked_head.h"
#include "optimized/cpu/emulated_sums.h"
#include "optimized/cpu/fused_sums.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

using HeadAt = std::function<Head(std::int64_t)>;

template <bool delta, bool decay, class Sums>
void run_heads(const Sums& sums, const Arguments& arguments, const Contract& contract, std::int64_t count,
               const HeadAt& head_at) {
  for_each_task(count, arguments.threads, [&] {
    return [&, worker = ChunkedHead<delta, decay, Sums>(sums, arguments, contract)](
               std::int64_t task) mutable { worker.run(head_at(task)); };
  });
}

template <class Sums>
void run_heads(const Sums& sums, const System& system, const Arguments& arguments, const Contract& contract,
               std::int64_t count, const HeadAt& head_at) {
  const bool decay = arguments.g.present();
  if (system.delta) {
    decay ? run_heads<true, true>(sums, arguments, contract, count, head_at)
          : run_heads<true, false>(sums, arguments, contract, count, head_at);
  } else {
    decay ? run_heads<false, true>(sums, arguments, contract, count, head_at)
          : run_heads<false, false>(sums, arguments, contract, count, head_at);
  }
}

template <class Sums>
Outcome run(const Sums& sums, const System& system, const Arguments& arguments, const Contract& contract) {
  Outcome outcome = chunked_outcome(system, arguments, contract);
  if (outcome.kind != Outcome::Kind::ran) return outcome;
  const Sizes sizes = checked_sizes(arguments);
  run_heads(sums, system, arguments, contract, sizes.sequences * sizes.value_heads, [&](std::int64_t task) {
    return head_of(arguments, sizes, task / sizes.value_heads, task % sizes.value_heads);
  });
  return outcome;
}

}  // namespace

template <const System& system>
Outcome run_chunked(const Arguments& arguments, const Contract& contract) {
  return run(FusedSums{}, system, arguments, contract);
}
template Outcome run_chunked<GATED_DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_chunked<DELTA_RULE>(const Arguments&, const Contract&);
template Outcome run_chunked<RETENTION>(const Arguments&, const Contract&);
template Outcome run_chunked<LINEAR_ATTENTION>(const Arguments&, const Contract&);

Outcome run_chunked_twin(const System& system, const Arguments& arguments, const Contract& contract) {
  return run(EmulatedSums{contract.accumulator}, system, arguments, contract);
}

Outcome chunked_outcome(const System& system, const Arguments& arguments, const Contract& contract) {
  std::string reason = refused_chunk(arguments, checked_sizes(arguments));
  if (reason.empty()) reason = unsupported_reason(system, arguments, contract);
  if (!reason.empty()) return {Outcome::Kind::unsupported, std::move(reason)};
  return {};
}

std::string refused_chunk(const Arguments& arguments, const Sizes& sizes) {
  if (arguments.chunk < 1) {
    throw Error("chunk is " + std::to_string(arguments.chunk) + "; the chunked form needs at least 1");
  }
  const std::int64_t longest = std::min(arguments.chunk, longest_sequence(arguments, sizes));
  if (longest <= kLongestChunk) return {};
  return "a chunk of " + std::to_string(longest) + " tokens; at most " + std::to_string(kLongestChunk) +
         ", take a shorter chunk";
}

void run_chunked_heads(const System& system, const Arguments& settings, const Contract& contract,
                       std::int64_t count, const HeadAt& head_at) {
  run_heads(FusedSums{}, system, settings, contract, count, head_at);
}

}  // namespace samestate::cpu
