#include "harness/run/repeated_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

#include "harness/run/guard.h"
#include "harness/run/guarded_memory.h"

namespace samestate {
namespace {

void put(const CallTensor& x, const std::vector<float>& values) {
  auto from = values.begin();
  visit(elements_of(x), [&](float& value) { value = *from++; });
}

using Values = std::vector<std::vector<float>>;

Values values_of(const std::vector<CallTensor>& tensors) {
  Values out;
  for (const CallTensor& x : tensors) out.push_back(values_of(elements_of(x)));
  return out;
}

/// Returns other data that the kernel must accept: the tensor's values in reverse order, half as large. Zeros
/// and ones, as in a mask, and values that belong to no sequence are kept. It does not apply to indices,
/// since half of an index is not one.
std::vector<float> others(std::vector<float> values) {
  if (std::ranges::all_of(values, [](float x) { return x == 0.0F || x == 1.0F || from_outside(x); }))
    return values;
  std::vector<float> owned;
  std::ranges::copy_if(values, std::back_inserter(owned), [](float x) { return !from_outside(x); });
  for (float& x : values) {
    if (from_outside(x)) continue;
    x = 0.5F * owned.back();
    owned.pop_back();
  }
  return values;
}

/// One call together with the memory that it reads and writes.
class Repetition {
 public:
  Repetition(const OneCall& call, const Segment& segment, const KernelCall& one, bool deterministic)
      : call_(call),
        segment_(segment),
        one_(one),
        inputs_(values_of(one.inputs)),
        deterministic_(deterministic) {
    for (std::int64_t n = 0; n < one.cu_seqlens.shape[0]; ++n) offsets_.push_back(one.cu_seqlens(n));
    for (const CallTensor& x : one.outputs) outputs_.push_back(values_of(elements_of(x)));
  }

  void run() {
    if (one_.tokens > 1 && offsets_.empty()) thrown_away(one_token_less());
    thrown_away(other_settings());
    // This comes after the calls with other data: what a kernel caches without looking at the data is from
    // those calls.
    one_field_at_a_time();
    call_(segment_, one_);
    // The last call is the one that is judged. Without bits to compare, a fault of the first call behind the others would
    // be lost if the second were always made.
    if (!deterministic_ && drawn_below(2) == 0) return;
    const Values once = values_of(one_.outputs);
    restore();
    call_(segment_, one_);
    if (!deterministic_) return;
    for (std::size_t i = 0; i < once.size(); ++i) same_bits(one_.outputs[i], once[i]);
  }

 private:
  /// Makes calls that differ from the next one in a single field, so that anything a kernel caches under a
  /// key without that field is wrong for it. Each of them fills the cache entry that the call would find: no
  /// call with exactly its fields may come between. Whatever a kernel caches of the previous call alone comes
  /// from the last of them, which the data choose, so that over many cases each field is the last one.
  void one_field_at_a_time() {
    std::vector<std::function<void()>> fields;
    const auto with = [&](auto&& change) {
      fields.emplace_back([this, change] {
        KernelCall other = one_;
        change(other);
        call_thrown_away(other);
      });
    };
    with([](KernelCall& other) { other.set("scale", static_cast<double>(other.scale() * 4.0F)); });
    // Named tensors have none of the other fields.
    const CallTensor *q = one_.input("q"), *v = one_.input("v");
    if (q != nullptr && v != nullptr && q->shape.size() == 4 && v->shape.size() == 4) {
      with([](KernelCall& other) { other.set("l2norm", other.l2norm() ? 0.0 : 1.0); });
      if (q->shape[2] != v->shape[2]) {
        with([](KernelCall& other) { other.set("tiled", other.head_map() == HeadMap::tiled ? 0.0 : 1.0); });
      }
      // Other strengths with the same lengths, or other lengths with the same strengths: one of the two finds
      // no entry.
      fields.emplace_back([this] {
        let_write(true);
        if (offsets_.empty()) {
          for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (one_.inputs[i].name == "beta") put(one_.inputs[i], others(inputs_[i]));
          }
        } else {
          reverse_lengths();
        }
        call_thrown_away(one_);
      });
    }
    for (const auto& field : fields) field();
    // Repeat one of them, chosen by the data, so that nothing comes after it.
    fields[drawn_below(fields.size())]();
  }

  /// Draws a number below `count` from the data of the call.
  [[nodiscard]] std::size_t drawn_below(std::size_t count) const {
    std::uint32_t bits = 0;
    for (const std::vector<float>& values : inputs_) {
      if (!values.empty()) bits = 31 * bits + std::bit_cast<std::uint32_t>(values.front());
    }
    return (bits >> 7U) % count;
  }

  [[nodiscard]] KernelCall one_token_less() const {
    KernelCall less = other_settings();
    less.tokens = one_.tokens - 1;
    for (std::int64_t& cut : less.cuts) cut = less.divides_heads ? cut : std::min(cut, less.tokens);
    for (auto* side : {&less.inputs, &less.outputs}) {
      for (CallTensor& x : *side) {
        if (x.token_dimension < 0) continue;
        const auto d = static_cast<std::size_t>(x.token_dimension);
        x = with_elements(x, elements_of(x).slice(d, 0, x.shape[d] - 1));
      }
    }
    return less;
  }
  [[nodiscard]] KernelCall other_settings() const {
    KernelCall other = one_;
    other.set("scale", static_cast<double>(2.0F * one_.scale()));
    // The ranks' sizes in reverse order.
    for (std::size_t r = 0; r < other.cuts.size(); ++r)
      other.cuts[r] = one_.cuts.back() - one_.cuts[one_.cuts.size() - 1 - r];
    return other;
  }

  /// Lets the judge write to the inputs between two calls, which a call can only read.
  void let_write(bool may) const {
    for (const CallTensor& x : one_.inputs) GuardedMemory::let_write(x.data, may);
    if (!offsets_.empty()) GuardedMemory::let_write(offset(0), may);
  }

  void thrown_away(const KernelCall& other) {
    let_write(true);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!one_.inputs[i].indices) put(one_.inputs[i], others(inputs_[i]));
    }
    reverse_lengths();
    call_thrown_away(other);
  }

  /// Returns an offset of the call, which the judge may write between two calls.
  [[nodiscard]] std::int64_t* offset(std::size_t n) const {
    return const_cast<std::int64_t*>(&one_.cu_seqlens(n));
  }

  void reverse_lengths() const {
    for (std::size_t n = 0; n < offsets_.size(); ++n) {
      *offset(n) = offsets_.front() + offsets_.back() - offsets_[offsets_.size() - 1 - n];
    }
  }

  /// Makes a call that the kernel may refuse, and restores the memory.
  void call_thrown_away(const KernelCall& other) const {
    let_write(false);
    try {
      call_(segment_, other);
    } catch (const Unavailable&) {
    }
    restore();
  }

  /// Outputs come first, since an input may lie in the memory of one.
  void restore() const {
    let_write(true);
    for (std::size_t i = 0; i < outputs_.size(); ++i) put(one_.outputs[i], outputs_[i]);
    for (std::size_t i = 0; i < inputs_.size(); ++i) put(one_.inputs[i], inputs_[i]);
    for (std::size_t n = 0; n < offsets_.size(); ++n) *offset(n) = offsets_[n];
    let_write(false);
  }

  static void same_bits(const CallTensor& x, const std::vector<float>& once) {
    const std::vector<float> again = values_of(elements_of(x));
    for (std::size_t i = 0; i < once.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(once[i]) == std::bit_cast<std::uint32_t>(again[i])) continue;
      throw Unrepeatable(
          fmt::format("the same call on the same memory gave {} of {} element {} and then {}: "
                      "it must give the same bits",
                      once[i], x.name, i, again[i]));
    }
  }

  const OneCall& call_;
  const Segment& segment_;
  const KernelCall& one_;
  Values inputs_, outputs_;  ///< the values that the call finds
  std::vector<std::int64_t> offsets_;
  bool deterministic_;
};

}  // namespace

OneCall repeated(OneCall call, bool deterministic) {
  return [call = std::move(call), deterministic](const Segment& segment, const KernelCall& one) {
    Repetition(call, segment, one, deterministic).run();
  };
}

OneCall without_state(OneCall call) {
  return [call = std::move(call)](const Segment& segment, const KernelCall& one) {
    KernelCall first = one;
    std::erase_if(first.outputs, [](const CallTensor& x) { return x.name == "final_state"; });
    if (first.outputs.size() == one.outputs.size()) return call(segment, one);
    call(segment, first);
    const Values o = values_of(first.outputs);
    call(segment, one);
    for (std::size_t i = 0; i < o.size(); ++i) put(first.outputs[i], o[i]);
  };
}

}  // namespace samestate
