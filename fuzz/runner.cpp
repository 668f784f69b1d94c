#include "fuzz/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "fuzz/guard.h"
#include "optimized/cpu/twin.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// A tensor of rank 4 in a buffer of its own with guards around it and, when padded, gaps inside it.
class Tensor4 {
 public:
  Tensor4() = default;
  Tensor4(std::array<std::int64_t, 4> shape, bool padded) {
    const std::int64_t gap = padded ? 3 : 0;
    view_.shape = shape;
    view_.stride[3] = 1;
    // An empty dimension counts as one in the strides, as in PyTorch: else that of the batch would be 0
    // without tokens.
    const auto extent = [&](std::size_t d) { return std::max<std::int64_t>(shape[d], 1); };
    view_.stride[2] = extent(3) + gap;
    view_.stride[1] = extent(2) * view_.stride[2] + gap;
    view_.stride[0] = extent(1) * view_.stride[1] + gap;
    storage_.assign(static_cast<std::size_t>(shape[0] * view_.stride[0] + 2 * kGuard), kPoison);
    view_.data = storage_.data() + kGuard;
  }

  void set(const std::vector<float>& dense) {
    std::size_t from = 0;
    each([&](float& x) { x = dense[from++]; });
  }
  [[nodiscard]] std::vector<float> get() const {
    std::vector<float> dense;
    dense.reserve(static_cast<std::size_t>(view_.size()));
    each([&](float& x) { dense.push_back(x); });
    return dense;
  }
  [[nodiscard]] const View<float, 4>& view() const { return view_; }

  /// Throws Trespass where an element outside the tensor changed.
  void check_surroundings(const char* name) const {
    std::vector<float> outside = storage_;
    View<float, 4> inside = view_;
    inside.data = outside.data() + kGuard;
    visit(inside, [](float& x) { x = kPoison; });
    for (std::size_t i = 0; i < outside.size(); ++i) {
      if (poisoned(outside[i])) continue;
      throw Trespass(std::string("the kernel wrote outside ") + name + ": element " +
                     std::to_string(static_cast<std::int64_t>(i) - kGuard) + " of its buffer");
    }
  }
  [[nodiscard]] bool same_as(const std::vector<float>& dense) const {
    const std::vector<float> now = get();
    return now.size() == dense.size() &&
           (now.empty() || std::memcmp(now.data(), dense.data(), now.size() * sizeof(float)) == 0);
  }

 private:
  template <class Visitor>
  static void visit(const View<float, 4>& view, Visitor&& visitor) {
    for (std::int64_t a = 0; a < view.shape[0]; ++a) {
      for (std::int64_t b = 0; b < view.shape[1]; ++b) {
        for (std::int64_t c = 0; c < view.shape[2]; ++c) {
          for (std::int64_t d = 0; d < view.shape[3]; ++d) visitor(view(a, b, c, d));
        }
      }
    }
  }
  template <class Visitor>
  void each(Visitor&& visitor) const {
    visit(view_, visitor);
  }

  std::vector<float> storage_;
  View<float, 4> view_;
};

View<const float, 3> without_last(const View<float, 4>& v) {
  return {v.data, {v.shape[0], v.shape[1], v.shape[2]}, {v.stride[0], v.stride[1], v.stride[2]}};
}

/// Evaluates one call of one form; throws Unavailable.
using Call = std::function<void(bool chunked, const Arguments&)>;

Outputs run_path(const Batch& batch, const Path& path, const RunOptions& options, const Call& call) {
  const BatchShape& s = batch.shape;
  const bool padded = options.padded;
  struct Named {
    const char* name;
    const std::vector<float>* dense;
    Tensor4 tensor;
  };
  const auto make = [&](const char* name, const std::vector<float>& dense,
                        std::array<std::int64_t, 4> shape) {
    Named input{name, &dense, Tensor4(shape, padded)};
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
  if (!s.offsets.empty()) {
    all.cu_seqlens =
        row_major<const std::int64_t, 1>(s.offsets.data(), {static_cast<std::int64_t>(s.offsets.size())});
  }
  Tensor4 o({s.B, s.T, s.Hv, s.dv}, padded);
  Tensor4 state({N, s.Hv, s.dk, s.dv}, padded);
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
  o.check_surroundings("o");
  state.check_surroundings("final_state");
  return {o.get(), state.get()};
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
