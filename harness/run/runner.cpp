#include "harness/run/runner.h"

#include <algorithm>
#include <functional>

#include "harness/run/guard.h"
#include "optimized/cpu/twin.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

View<const float, 3> without_last(const View<float, 4>& v) {
  return {v.data, {v.shape[0], v.shape[1], v.shape[2]}, {v.stride[0], v.stride[1], v.stride[2]}};
}

/// Offsets of packed sequences with guards around them, which a loop up to them does not enter.
class GuardedOffsets {
 public:
  explicit GuardedOffsets(const std::vector<std::int64_t>& offsets) {
    storage_.assign(offsets.size() + 2 * kGuard, kOutside);
    std::copy(offsets.begin(), offsets.end(), storage_.begin() + kGuard);
    before_ = storage_;
  }
  [[nodiscard]] View<const std::int64_t, 1> view() const {
    const auto size = static_cast<std::int64_t>(storage_.size()) - 2 * kGuard;
    return size > 0 ? row_major<const std::int64_t, 1>(storage_.data() + kGuard, {size})
                    : View<const std::int64_t, 1>{};
  }
  /// Throws Trespass.
  void check() const {
    if (storage_ != before_) throw Trespass("the kernel changed its input cu_seqlens");
  }

 private:
  static constexpr std::int64_t kOutside = -0x5a5a5a5a;
  std::vector<std::int64_t> storage_, before_;
};

/// Evaluates one call of one form; throws Unavailable.
using Call = std::function<void(bool chunked, const Arguments&)>;

Outputs run_path(const Batch& batch, const Path& path, const RunOptions& options, const Call& call) {
  const BatchShape& s = batch.shape;
  struct Named {
    const char* name;
    const std::vector<float>* dense;
    GuardedTensor tensor;
  };
  const auto make = [&](const char* name, const std::vector<float>& dense,
                        std::array<std::int64_t, 4> shape) {
    Named input{name, &dense, GuardedTensor(shape, options.layout)};
    input.tensor.set(dense);
    return input;
  };
  std::vector<Named> inputs;
  inputs.push_back(make("q", batch.q, {s.B, s.T, s.Hk, s.dk}));
  inputs.push_back(make("k", batch.k, {s.B, s.T, s.Hk, s.dk}));
  inputs.push_back(make("v", batch.v, {s.B, s.T, s.Hv, s.dv}));
  const std::int64_t N = s.sequences();
  Arguments all;
  if (!batch.g.empty()) inputs.push_back(make("g", batch.g, {s.B, s.T, s.Hv, 1}));
  if (!batch.beta.empty()) inputs.push_back(make("beta", batch.beta, {s.B, s.T, s.Hv, 1}));
  if (!batch.initial_state.empty()) {
    inputs.push_back(make("initial_state", batch.initial_state, {N, s.Hv, s.dk, s.dv}));
  }
  for (const Named& input : inputs) {
    const View<float, 4>& view = input.tensor.view();
    const std::string_view name = input.name;
    if (name == "q") all.q = view;
    if (name == "k") all.k = view;
    if (name == "v") all.v = view;
    if (name == "g") all.g = without_last(view);
    if (name == "beta") all.beta = without_last(view);
    if (name == "initial_state") all.initial_state = view;
  }
  const GuardedOffsets offsets(s.offsets);
  all.cu_seqlens = offsets.view();
  GuardedTensor o({s.B, s.T, s.Hv, s.dv}, options.layout);
  GuardedTensor state({N, s.Hv, s.dk, s.dv}, options.layout);
  o.spoil();
  state.spoil();
  all.scale = static_cast<float>(s.scale);
  all.head_map = s.head_map;
  all.l2norm = s.l2norm;
  all.threads = options.threads;
  all.final_state = state.view();

  std::int64_t begin = 0;
  bool first = true;
  const auto evaluate = [&](std::int64_t tokens, Index chunk) {
    Arguments part = all;
    const std::int64_t end = begin + tokens;
    part.q = all.q.slice(1, begin, end);
    part.k = all.k.slice(1, begin, end);
    part.v = all.v.slice(1, begin, end);
    if (all.g.present()) part.g = all.g.slice(1, begin, end);
    if (all.beta.present()) part.beta = all.beta.slice(1, begin, end);
    part.o = o.view().slice(1, begin, end);
    if (!first) part.initial_state = state.view();  // in place, as a decoding engine does
    part.chunk = chunk;
    call(chunk > 0, part);
    first = false;
    begin = end;
  };
  for (const Segment& segment : path) {
    if (segment.token_by_token) {
      for (Index t = 0; t < segment.tokens; ++t) evaluate(1, segment.chunk);
    } else {
      evaluate(segment.tokens, segment.chunk);
    }
  }
  if (first) evaluate(0, 0);  // a path of no call at all still hands the state on

  for (const Named& input : inputs) {
    if (!input.tensor.same_as(*input.dense))
      throw Trespass(std::string("the kernel changed its input ") + input.name);
    input.tensor.check_surroundings(input.name);
  }
  offsets.check();
  o.check_surroundings("o");
  state.check_surroundings("final_state");
  return {o.written(), state.written()};
}

}  // namespace

Outputs run_kernel(const KernelPair& kernels, const Batch& batch, const Path& path, const Contract& contract,
                   const RunOptions& options) {
  return run_path(batch, path, options, [&](bool chunked, const Arguments& arguments) {
    const Kernel* kernel = chunked ? kernels.chunked : kernels.recurrent;
    if (kernel == nullptr) {
      throw Unavailable({Outcome::Kind::unsupported,
                         std::string("the path needs a ") + (chunked ? "chunked" : "recurrent") +
                             " kernel of the same system and device, and the table has none"});
    }
    const Outcome outcome = kernel->run(arguments, chunked ? contract : recurrent_contract(contract));
    if (outcome.kind != Outcome::Kind::ran) throw Unavailable(outcome);
  });
}

Outputs run_on_twin(std::string_view system, const Batch& batch, const Path& path, const Contract& contract,
                    bool reordered) {
  return run_path(batch, path, {}, [&](bool chunked, const Arguments& arguments) {
    Contract used = chunked ? contract : recurrent_contract(contract);
    if (reordered) {
      used.accumulator = used.accumulator == Accumulator::fp32 ? Accumulator::tensor_core : Accumulator::fp32;
    }
    const Outcome outcome = run_twin(system, chunked ? "chunked" : "recurrent", arguments, used);
    if (outcome.kind != Outcome::Kind::ran) throw Unavailable(outcome);
  });
}

}  // namespace samestate
