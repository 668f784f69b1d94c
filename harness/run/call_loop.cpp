#include "harness/run/call_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/run/guard.h"
#include "harness/run/guarded_memory.h"
#include "harness/run/repeated_call.h"

namespace samestate {
namespace {

/// Offsets of packed sequences in guarded pages. The values around them make a loop that reads past them do
/// nothing.
class GuardedOffsets {
 public:
  /// The first sequence begins at token `lead`.
  GuardedOffsets(const std::vector<std::int64_t>& offsets, std::int64_t lead, std::uint64_t turn)
      : memory_({{0, offsets.size() * sizeof(std::int64_t)}}, {.ends_page = turn % 2 != 0, .element = 8}),
        size_(std::ssize(offsets)) {
    if (offsets.empty()) return;
    std::ranges::fill(all(), kOutside);
    std::ranges::transform(offsets, first(), [&](std::int64_t offset) { return offset + lead; });
    before_.assign(all().begin(), all().end());
    memory_.named("cu_seqlens", true);
    memory_.close();
  }
  [[nodiscard]] View<const std::int64_t, 1> view() const {
    return size_ > 0 ? row_major<const std::int64_t, 1>(first(), {size_}) : View<const std::int64_t, 1>{};
  }
  /// Throws Trespass if they were changed.
  void check() const {
    if (size_ == 0) return;
    if (const std::string what = memory_.trespass(); !what.empty()) throw Trespass("the kernel " + what);
    if (!std::ranges::equal(all(), before_)) throw Trespass("the kernel changed its input cu_seqlens");
  }

 private:
  static constexpr std::int64_t kOutside = -0x5a5a5a5a;
  [[nodiscard]] std::int64_t* first() const { return reinterpret_cast<std::int64_t*>(memory_.data()); }
  [[nodiscard]] std::span<std::int64_t> all() const {
    const std::span<std::byte> pages = memory_.pages(0);
    return {reinterpret_cast<std::int64_t*>(pages.data()), pages.size() / sizeof(std::int64_t)};
  }
  GuardedMemory memory_;
  std::int64_t size_;
  std::vector<std::int64_t> before_;
};

int token_dimension(const RunTensor& x) {
  if (x.axis != Axis::tokens && x.axis != Axis::prefix) return -1;
  return x.batched ? 1 : 0;
}

/// One side of a call: its guarded tensors, and the values that the inputs have.
class GuardedSide {
 public:
  /// `first` is the number of the first tensor among all tensors of the call; `turn` is as in GuardedTensor.
  GuardedSide(const CallLoop& loop, const RunOptions& options, std::size_t first, std::uint64_t turn)
      : layout_(options.layout), first_(first), turn_(turn) {
    if (!loop.offsets.empty()) lead_ = options.lead, slack_ = options.slack;
  }

  /// `shape` excludes the tokens that belong to no sequence.
  void add(const RunTensor& spec, std::vector<std::int64_t> shape, std::vector<float> values = {}) {
    TensorPlace place{std::move(shape), spec.axis, spec.batched};
    if (spec.axis == Axis::tokens || spec.axis == Axis::prefix) {
      place.lead = lead_, place.slack = slack_;
      place.shape[static_cast<std::size_t>(token_dimension(spec))] += lead_ + slack_;
    }
    places_.push_back(std::move(place));
    specs_.push_back(&spec);
    values_.push_back(std::move(values));
  }
  void place_inputs() {
    tensors_ = guarded_tensors(places_, layout_, first_, turn_);
    for (std::size_t i = 0; i < size(); ++i) tensors_[i].set(values_[i]);
    for (std::size_t i = 0; i < size(); ++i) tensors_[i].close_input(specs_[i]->name);
  }
  void place_outputs() {
    role_ = TensorRole::output;
    tensors_ = guarded_tensors(places_, layout_, first_, turn_);
    for (std::size_t i = 0; i < size(); ++i) {
      tensors_[i].spoil();
      tensors_[i].open_output(specs_[i]->name);
    }
  }

  [[nodiscard]] std::size_t size() const { return specs_.size(); }
  [[nodiscard]] const RunTensor& spec(std::size_t i) const { return *specs_[i]; }
  [[nodiscard]] GuardedTensor& tensor(std::size_t i) { return tensors_[i]; }
  /// Returns the whole tensor.
  [[nodiscard]] CallTensor whole(std::size_t i) const {
    const RunTensor& spec = *specs_[i];
    CallTensor x{.name = spec.name, .role = role_, .axis = spec.axis};
    if (role_ == TensorRole::input && spec.axis == Axis::whole) x.role = TensorRole::weight;
    x.token_dimension = token_dimension(spec);
    x.indices = spec.indices;
    return with_elements(std::move(x), tensors_[i].tensor());
  }
  /// Returns the part of an input that a call of the tokens [begin, end) sees, or of an output that it
  /// writes.
  [[nodiscard]] CallTensor part(std::size_t i, std::int64_t begin, std::int64_t end) const {
    CallTensor x = whole(i);
    if (x.token_dimension < 0 || lead_ + slack_ > 0) return x;  // a packed batch is a single call
    const std::int64_t from = specs_[i]->axis == Axis::prefix ? 0 : begin;
    const auto d = static_cast<std::size_t>(x.token_dimension);
    return with_elements(std::move(x), tensors_[i].tensor().slice(d, from, end));
  }

  /// These throw Trespass.
  void check_inputs() const {
    check_surroundings();
    for (std::size_t i = 0; i < size(); ++i) {
      if (!tensors_[i].same_as(values_[i])) throw Trespass("the kernel changed its input " + specs_[i]->name);
    }
  }
  void check_surroundings() const {
    for (std::size_t i = 0; i < size(); ++i) tensors_[i].check_surroundings(specs_[i]->name);
  }

 private:
  Layout layout_;
  std::size_t first_;
  std::uint64_t turn_;
  TensorRole role_ = TensorRole::input;
  std::int64_t lead_ = 0, slack_ = 0;
  std::vector<TensorPlace> places_;
  std::vector<const RunTensor*> specs_;
  std::vector<std::vector<float>> values_;
  std::vector<GuardedTensor> tensors_;
};

/// The side of their pages that tensors are flush with differs between cases, and between the calls of a case
/// that are made separately.
std::uint64_t turn_of(const RunOptions& options) { return options.of != nullptr ? options.of->seed : 0; }

KernelCall one_call(const CallLoop& loop, const RunOptions& options, const Segment& segment,
                    std::int64_t tokens) {
  KernelCall call = loop.settings;
  // A packed call has the tokens of no sequence too.
  call.tokens = loop.offsets.empty() ? tokens : tokens + options.lead + options.slack;
  call.set("chunk", static_cast<double>(segment.chunk));
  call.divides_heads = !segment.head_cuts.empty();
  const std::vector<Index>& cuts = call.divides_heads ? segment.head_cuts : segment.cuts;
  call.cuts.assign(cuts.begin(), cuts.end());
  // Tokens of no sequence belong to the first and the last rank.
  if (!loop.offsets.empty() && !segment.cuts.empty()) {
    for (std::size_t r = 1; r < call.cuts.size(); ++r) call.cuts[r] += options.lead;
    call.cuts.back() += options.slack;
  }
  call.threads = options.threads;
  return call;
}

/// Calls step(segment, begin, end) for every call after the given tokens; an empty segment still passes the
/// state on.
template <class Step>
void each_call(const CallLoop& loop, Step&& step) {
  std::int64_t begin = 0;
  bool any = false;
  for (const Segment& segment : loop.path) {
    const Index calls = segment.token_by_token ? segment.tokens : 1;
    const Index tokens = segment.token_by_token ? 1 : segment.tokens;
    for (Index i = 0; i < calls; ++i, begin += tokens, any = true) {
      if (begin >= loop.given) step(segment, begin, begin + tokens);
    }
  }
  if (!any) step(Segment{}, 0, 0);
}

/// Keeps each tensor in one buffer, of which every call sees its part, and carries states in place, as a
/// decoding engine does.
std::vector<std::vector<float>> run_in_place(const CallLoop& loop, const RunOptions& options,
                                             const OneCall& call) {
  const std::uint64_t turn = turn_of(options);
  GuardedSide inputs(loop, options, 0, turn), outputs(loop, options, loop.inputs.size(), turn);
  for (const RunTensor& x : loop.outputs) outputs.add(x, x.shape);
  outputs.place_outputs();
  // True for outputs whose memory also holds the input that the calls carry.
  std::vector<bool> carries(outputs.size());
  for (const RunTensor& x : loop.inputs) {
    if (x.data == nullptr) continue;
    bool in_output = false;
    for (std::size_t i = 0; options.final_state == FinalState::in_place && i < outputs.size(); ++i) {
      if (outputs.spec(i).carried_as != x.name) continue;
      outputs.tensor(i).set(*x.data);
      in_output = carries[i] = true;
    }
    if (!in_output) inputs.add(x, x.shape, *x.data);
  }
  inputs.place_inputs();
  const GuardedOffsets offsets(loop.offsets, options.lead, turn);
  each_call(loop, [&](const Segment& segment, std::int64_t begin, std::int64_t end) {
    KernelCall one = one_call(loop, options, segment, end - begin);
    one.cu_seqlens = offsets.view();
    for (std::size_t i = 0; i < inputs.size(); ++i) one.inputs.push_back(inputs.part(i, begin, end));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      one.outputs.push_back(outputs.part(i, begin, end));
      const std::string& input = outputs.spec(i).carried_as;
      if (!carries[i]) {
        carries[i] = !input.empty();
        continue;
      }
      std::erase_if(one.inputs, [&](const CallTensor& in) { return in.name == input; });
      one.outputs.back().role = TensorRole::in_place;
      CallTensor state = outputs.whole(i);
      state.name = input;
      state.role = TensorRole::input;
      one.inputs.push_back(std::move(state));
    }
    call(segment, one);
  });
  inputs.check_inputs();
  offsets.check();
  outputs.check_surroundings();
  std::vector<std::vector<float>> written;
  for (std::size_t i = 0; i < outputs.size(); ++i) written.push_back(outputs.tensor(i).written());
  return written;
}

/// Row-major data of a tensor seen as [outer, extent of the tokens, inner].
struct Cut {
  std::size_t outer = 1, tokens = 1, inner = 1;

  explicit Cut(const RunTensor& x) {
    const auto d = static_cast<std::size_t>(token_dimension(x));
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

/// Makes every call on tensors of its own.
std::vector<std::vector<float>> run_on_own_tensors(const CallLoop& loop, const RunOptions& options,
                                                   const OneCall& call) {
  std::map<std::string, std::vector<float>> states;
  std::vector<std::vector<float>> all;
  for (const RunTensor& x : loop.outputs) {
    std::size_t size = 1;
    for (const std::int64_t extent : x.shape) size *= static_cast<std::size_t>(extent);
    all.emplace_back(size, kPoison);
  }
  std::uint64_t turn = turn_of(options);
  each_call(loop, [&](const Segment& segment, std::int64_t begin, std::int64_t end) {
    KernelCall one = one_call(loop, options, segment, end - begin);
    GuardedSide inputs(loop, options, 0, turn), outputs(loop, options, loop.inputs.size(), turn);
    ++turn;
    for (const RunTensor& x : loop.inputs) {
      const auto state = states.find(x.name);
      if (state == states.end() && x.data == nullptr) continue;
      std::vector<std::int64_t> shape = x.shape;
      std::vector<float> dense;
      if (const int d = token_dimension(x); d >= 0) {
        const std::int64_t from = x.axis == Axis::prefix ? 0 : begin;
        shape[static_cast<std::size_t>(d)] = end - from;
        const Cut cut(x);
        dense.resize(cut.outer * static_cast<std::size_t>(end - from) * cut.inner);
        cut.copy(x.data->begin(), dense.begin(), static_cast<std::size_t>(from),
                 static_cast<std::size_t>(end - from), false);
      } else {
        dense = state != states.end() ? state->second : *x.data;
      }
      inputs.add(x, std::move(shape), std::move(dense));
    }
    inputs.place_inputs();
    for (const RunTensor& x : loop.outputs) {
      std::vector<std::int64_t> shape = x.shape;
      if (const int d = token_dimension(x); d >= 0)
        shape[static_cast<std::size_t>(d)] = x.axis == Axis::prefix ? end : end - begin;
      outputs.add(x, std::move(shape));
    }
    outputs.place_outputs();
    for (std::size_t i = 0; i < inputs.size(); ++i) one.inputs.push_back(inputs.whole(i));
    for (std::size_t i = 0; i < outputs.size(); ++i) one.outputs.push_back(outputs.whole(i));
    call(segment, one);
    inputs.check_inputs();
    outputs.check_surroundings();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const RunTensor& spec = outputs.spec(i);
      std::vector<float> written = outputs.tensor(i).written();
      if (token_dimension(spec) >= 0) {
        const std::int64_t from = spec.axis == Axis::prefix ? 0 : begin;
        Cut(spec).copy(written.begin(), all[i].begin(), static_cast<std::size_t>(from),
                       static_cast<std::size_t>(end - from), true);
      } else {
        all[i] = written;
      }
      if (!spec.carried_as.empty()) states[spec.carried_as] = std::move(written);
    }
  });
  return all;
}

}  // namespace

StridedTensor elements_of(const CallTensor& x) {
  if (x.dtype != Dtype::fp32)
    throw Error(fmt::format("tensor {} is not fp32: the judge reads and writes fp32", x.name));
  return {static_cast<float*>(x.data), x.shape, x.stride};
}

CallTensor with_elements(CallTensor x, const StridedTensor& elements) {
  x.dtype = Dtype::fp32;
  x.data = elements.data;
  x.shape = elements.shape;
  x.stride = elements.stride;
  return x;
}

std::vector<float> values_of(const StridedTensor& x) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(x.size()));
  visit(x, [&](float value) { values.push_back(value); });
  return values;
}

std::vector<std::vector<float>> run_calls(const CallLoop& loop, const RunOptions& options,
                                          const OneCall& call) {
  const auto run = loop.in_place ? run_in_place : run_on_own_tensors;
  OneCall one = call;
  if (options.repeat) one = repeated(std::move(one), options.deterministic);
  if (options.final_state == FinalState::none) one = without_state(std::move(one));
  return run(loop, options, one);
}

}  // namespace samestate
