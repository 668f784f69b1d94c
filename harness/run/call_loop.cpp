#include "harness/run/call_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "harness/run/guard.h"

namespace samestate {
namespace {

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

struct GuardedInput {
  const RunTensor* spec;
  std::vector<float> dense;
  GuardedTensor tensor;

  GuardedInput(const RunTensor& from, std::vector<std::int64_t> shape, std::vector<float> values,
               Layout layout)
      : spec(&from), dense(std::move(values)), tensor(std::move(shape), layout) {
    tensor.set(dense);
  }
  /// Throws Trespass.
  void check() const {
    if (!tensor.same_as(dense)) throw Trespass("the kernel changed its input " + spec->name);
    tensor.check_surroundings(spec->name);
  }
};

struct GuardedOutput {
  const RunTensor* spec;
  GuardedTensor tensor;

  GuardedOutput(const RunTensor& from, std::vector<std::int64_t> shape, Layout layout)
      : spec(&from), tensor(std::move(shape), layout) {
    tensor.spoil();
  }
};

std::size_t token_dimension(const RunTensor& x) { return x.batched ? 1 : 0; }

/// What a call of the tokens [begin, end) sees of an input or writes of an output.
StridedTensor part_of(const RunTensor& spec, const StridedTensor& whole, std::int64_t begin,
                      std::int64_t end) {
  if (spec.axis == Axis::tokens) return whole.slice(token_dimension(spec), begin, end);
  if (spec.axis == Axis::prefix) return whole.slice(token_dimension(spec), 0, end);
  return whole;
}

KernelCall one_call(const CallLoop& loop, const RunOptions& options, const Segment& segment,
                    std::int64_t tokens) {
  KernelCall call = loop.settings;
  call.tokens = tokens;
  call.chunk = segment.chunk;
  call.threads = options.threads;
  return call;
}

/// Calls step(segment, begin, end) for every call; a path of none still hands the state on.
template <class Step>
void each_call(const Path& path, Step&& step) {
  std::int64_t begin = 0;
  bool any = false;
  for (const Segment& segment : path) {
    const Index calls = segment.token_by_token ? segment.tokens : 1;
    const Index tokens = segment.token_by_token ? 1 : segment.tokens;
    for (Index i = 0; i < calls; ++i, begin += tokens, any = true) step(segment, begin, begin + tokens);
  }
  if (!any) step(Segment{}, 0, 0);
}

/// Each tensor whole in one buffer, of which every call sees its part; states carried in place, as a decoding
/// engine does.
std::vector<std::vector<float>> run_in_place(const CallLoop& loop, const RunOptions& options,
                                             const OneCall& call) {
  std::deque<GuardedInput> inputs;
  for (const RunTensor& x : loop.inputs) {
    if (x.data != nullptr) inputs.emplace_back(x, x.shape, *x.data, options.layout);
  }
  std::deque<GuardedOutput> outputs;
  for (const RunTensor& x : loop.outputs) outputs.emplace_back(x, x.shape, options.layout);
  const GuardedOffsets offsets(loop.offsets);
  bool first = true;
  each_call(loop.path, [&](const Segment& segment, std::int64_t begin, std::int64_t end) {
    KernelCall one = one_call(loop, options, segment, end - begin);
    one.cu_seqlens = offsets.view();
    for (const GuardedInput& x : inputs) {
      one.inputs.push_back({x.spec->name, part_of(*x.spec, x.tensor.tensor(), begin, end)});
    }
    for (const GuardedOutput& x : outputs) {
      one.outputs.push_back({x.spec->name, part_of(*x.spec, x.tensor.tensor(), begin, end)});
      if (first || x.spec->carried_as.empty()) continue;
      const auto at = std::find_if(one.inputs.begin(), one.inputs.end(),
                                   [&](const CallTensor& in) { return in.name == x.spec->carried_as; });
      if (at == one.inputs.end()) {
        one.inputs.push_back({x.spec->carried_as, x.tensor.tensor()});
      } else {
        at->tensor = x.tensor.tensor();
      }
    }
    call(segment, one);
    first = false;
  });
  for (const GuardedInput& x : inputs) x.check();
  offsets.check();
  std::vector<std::vector<float>> written;
  for (const GuardedOutput& x : outputs) {
    x.tensor.check_surroundings(x.spec->name);
    written.push_back(x.tensor.written());
  }
  return written;
}

/// Row-major data of a tensor cut into [outer, extent of the tokens, inner].
struct Cut {
  std::size_t outer = 1, tokens = 1, inner = 1;

  explicit Cut(const RunTensor& x) {
    const std::size_t d = token_dimension(x);
    for (std::size_t i = 0; i < x.shape.size(); ++i)
      (i < d ? outer : i == d ? tokens : inner) *= static_cast<std::size_t>(x.shape[i]);
  }
  template <class From, class To>
  void copy(From from, To to, std::size_t begin, std::size_t count, bool into_whole) const {
    for (std::size_t o = 0; o < outer; ++o) {
      const std::size_t whole = (o * tokens + begin) * inner;
      const std::size_t part = o * count * inner;
      std::copy_n(from + static_cast<std::ptrdiff_t>(into_whole ? part : whole), count * inner,
                  to + static_cast<std::ptrdiff_t>(into_whole ? whole : part));
    }
  }
};

bool sliced(Axis axis) { return axis == Axis::tokens || axis == Axis::prefix; }

/// Every call on tensors of its own.
std::vector<std::vector<float>> run_apart(const CallLoop& loop, const RunOptions& options,
                                          const OneCall& call) {
  std::map<std::string, std::vector<float>> states;
  std::vector<std::vector<float>> all;
  for (const RunTensor& x : loop.outputs) {
    std::size_t size = 1;
    for (const std::int64_t extent : x.shape) size *= static_cast<std::size_t>(extent);
    all.emplace_back(size, kPoison);
  }
  const GuardedOffsets offsets(loop.offsets);
  each_call(loop.path, [&](const Segment& segment, std::int64_t begin, std::int64_t end) {
    KernelCall one = one_call(loop, options, segment, end - begin);
    one.cu_seqlens = offsets.view();
    std::deque<GuardedInput> inputs;
    for (const RunTensor& x : loop.inputs) {
      const auto state = states.find(x.name);
      if (state == states.end() && x.data == nullptr) continue;
      std::vector<std::int64_t> shape = x.shape;
      std::vector<float> dense;
      if (sliced(x.axis)) {
        const std::int64_t from = x.axis == Axis::prefix ? 0 : begin;
        shape[token_dimension(x)] = end - from;
        const Cut cut(x);
        dense.resize(cut.outer * static_cast<std::size_t>(end - from) * cut.inner);
        cut.copy(x.data->begin(), dense.begin(), static_cast<std::size_t>(from),
                 static_cast<std::size_t>(end - from), false);
      } else {
        dense = state != states.end() ? state->second : *x.data;
      }
      inputs.emplace_back(x, std::move(shape), std::move(dense), options.layout);
      one.inputs.push_back({x.name, inputs.back().tensor.tensor()});
    }
    std::deque<GuardedOutput> outputs;
    for (const RunTensor& x : loop.outputs) {
      std::vector<std::int64_t> shape = x.shape;
      if (x.axis == Axis::tokens) shape[token_dimension(x)] = end - begin;
      if (x.axis == Axis::prefix) shape[token_dimension(x)] = end;
      outputs.emplace_back(x, std::move(shape), options.layout);
      one.outputs.push_back({x.name, outputs.back().tensor.tensor()});
    }
    call(segment, one);
    for (const GuardedInput& x : inputs) x.check();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const RunTensor& spec = *outputs[i].spec;
      outputs[i].tensor.check_surroundings(spec.name);
      std::vector<float> written = outputs[i].tensor.written();
      if (sliced(spec.axis)) {
        const std::int64_t from = spec.axis == Axis::prefix ? 0 : begin;
        Cut(spec).copy(written.begin(), all[i].begin(), static_cast<std::size_t>(from),
                       static_cast<std::size_t>(end - from), true);
      } else {
        all[i] = written;
      }
      if (!spec.carried_as.empty()) states[spec.carried_as] = std::move(written);
    }
  });
  offsets.check();
  return all;
}

StridedTensor named(const std::vector<CallTensor>& list, std::string_view name) {
  for (const CallTensor& x : list) {
    if (x.name == name) return x.tensor;
  }
  return {};
}

}  // namespace

StridedTensor KernelCall::input(std::string_view name) const { return named(inputs, name); }
StridedTensor KernelCall::output(std::string_view name) const { return named(outputs, name); }

std::vector<std::vector<float>> run_calls(const CallLoop& loop, const RunOptions& options,
                                          const OneCall& call) {
  return loop.in_place ? run_in_place(loop, options, call) : run_apart(loop, options, call);
}

}  // namespace samestate
