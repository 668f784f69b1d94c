#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "harness/laws/tensor_comparison.h"

/// The law `serving` of systems of named tensors (head_serving.cpp has that of the recurrent family).
namespace samestate::tensor_laws_detail {
namespace {

/// One request: how far it has come, the states that the kernel left, and what the kernel was given.
struct TensorSlot {
  Index done = 0;
  std::vector<Index> cuts;  ///< where its calls ended
  std::map<std::string, std::vector<float>> states;
  Tensors<double> outputs;  ///< the rows of its tokens, and the states after its last call
};

/// Returns a seed that depends on all inputs except weights.
std::uint64_t seed_of(const std::vector<CaseTensor>& inputs) {
  std::uint64_t hash = kNoData;
  for (const CaseTensor& x : inputs) {
    if (x.spec.axis != Axis::whole) hash = fnv_of(x.data, hash);
  }
  return hash;
}

class TensorServer {
 public:
  explicit TensorServer(const TensorSubject& s)
      : s_(s),
        signature_(s.system.row.signature(s.system.call(s.r.c, s.native))),
        engine_(seed_of(s.inputs)),
        comparison_(s.trace) {
    for (Index b = 0; b < s.r.c.B; ++b) {
      slots_.push_back(empty(b));
      alone_.push_back(s.run_as(resized(s.r, 1, T()), row_alone(b), {}).front());
    }
    wholes_ = oracles_of(s, s.inputs, {});
  }

  Judgement run() {
    int restarts = 0;
    for (std::vector<std::size_t> open = unfinished(); !open.empty(); open = unfinished()) {
      const std::size_t n = open[below(open.size())];
      switch (below(6)) {
        case 0:
          if (restarts >= kRestarts || slots_[n].done == 0) break;
          ++restarts;
          compare(n);
          slots_[n] = empty(static_cast<Index>(n));
          break;
        case 1:
          speculate(n);
          break;
        case 2:
        case 3:
          decode(open);
          break;
        default:
          advance({n}, 1 + static_cast<Index>(below(static_cast<std::size_t>(T() - slots_[n].done))));
      }
    }
    for (std::size_t n = 0; n < slots_.size(); ++n) compare(n);
    return comparison_.take("a request served in a slot among others, and the same alone in one call");
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  [[nodiscard]] Index T() const { return s_.r.c.T; }

  [[nodiscard]] std::vector<std::size_t> unfinished() const {
    std::vector<std::size_t> open;
    for (std::size_t n = 0; n < slots_.size(); ++n) {
      if (slots_[n].done < T()) open.push_back(n);
    }
    return open;
  }

  /// Returns request b before its first token.
  [[nodiscard]] TensorSlot empty(Index b) const {
    TensorSlot slot;
    for (const CaseTensor& x : s_.inputs) {
      if (x.spec.axis == Axis::state) slot.states[x.spec.name] = part(x, b, 0, x.spec.size());
    }
    for (const TensorSpec& spec : signature_.outputs)
      slot.outputs[spec.name] = Matrix<double>(spec.rows(), spec.columns());
    return slot;
  }

  /// Returns elements [begin, end) of sequence b.
  static std::vector<float> part(const CaseTensor& x, Index b, Index begin, Index end) {
    const auto first = x.data.begin() + b * x.spec.size();
    return {first + begin, first + end};
  }

  [[nodiscard]] std::vector<CaseTensor> row_alone(Index b) const {
    std::vector<CaseTensor> out = s_.inputs;
    for (CaseTensor& x : out) {
      if (!x.batched) continue;
      x.data = part(x, b, 0, x.spec.size());
      x.shape[0] = 1;
    }
    return out;
  }

  /// Runs the next `count` tokens of the slots in one call, each from its own states. A call sees its slot's
  /// cache only up to its tokens, so if there is a cache all slots of one call must be equally far.
  std::vector<Tensors<double>> call(const std::vector<std::size_t>& rows, Index count) {
    std::vector<CaseTensor> inputs = s_.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CaseTensor& x = inputs[i];
      if (!x.batched) continue;
      const CaseTensor& all = s_.inputs[i];
      const bool by_token = all.spec.axis == Axis::tokens || all.spec.axis == Axis::prefix;
      const Index each = by_token ? all.spec.size() / T() : 0;
      x.data.clear();
      for (const std::size_t n : rows) {
        const TensorSlot& slot = slots_[n];
        const Index begin = all.spec.axis == Axis::prefix ? 0 : slot.done;
        const std::vector<float> mine =
            all.spec.axis == Axis::state ? slot.states.at(x.spec.name)
            : by_token ? part(all, static_cast<Index>(n), begin * each, (slot.done + count) * each)
                       : part(all, static_cast<Index>(n), 0, all.spec.size());
        x.data.insert(x.data.end(), mine.begin(), mine.end());
      }
      x.shape[0] = std::ssize(rows);
      if (!by_token) continue;
      x.spec.shape[0] = x.shape[1] =
          all.spec.axis == Axis::prefix ? slots_[rows.front()].done + count : count;
      // The cache is passed whole, because a path of one call would see only its first rows.
      if (all.spec.axis == Axis::prefix) x.spec.axis = Axis::state;
    }
    return s_.run_as(resized(s_.r, std::ssize(rows), count), inputs, {});
  }

  void advance(const std::vector<std::size_t>& rows, Index count) {
    const std::vector<Tensors<double>> results = call(rows, count);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      TensorSlot& slot = slots_[rows[i]];
      for (const TensorSpec& spec : signature_.outputs) {
        const Matrix<double>& x = get(results[i], spec.name);
        if (spec.axis == Axis::state) {
          slot.outputs[spec.name] = x;
          std::vector<float>& state = slot.states[spec.name];
          std::transform(x.data(), x.data() + x.size(), state.begin(),
                         [](double value) { return static_cast<float>(value); });
        } else {
          slot.outputs[spec.name].middleRows(slot.done * (x.rows() / count), x.rows()) = x;
        }
      }
      slot.done += count;
      slot.cuts.push_back(slot.done);
    }
  }

  /// Runs one token of every open slot in one batch, the last slot first; if there is a cache, only those
  /// that are as far as the first open one.
  void decode(std::vector<std::size_t> open) {
    const bool cached = std::any_of(s_.inputs.begin(), s_.inputs.end(),
                                    [](const CaseTensor& x) { return x.spec.axis == Axis::prefix; });
    const Index first = slots_[open.front()].done;
    if (cached) std::erase_if(open, [&](std::size_t n) { return slots_[n].done != first; });
    std::reverse(open.begin(), open.end());
    advance(open, 1);
  }

  /// Runs tokens on a copy that is then thrown away.
  void speculate(std::size_t n) {
    const TensorSlot before = slots_[n];
    advance({n}, 1 + static_cast<Index>(below(static_cast<std::size_t>(T() - before.done))));
    slots_[n] = before;
  }

  void compare(std::size_t n) {
    const TensorSlot& slot = slots_[n];
    if (slot.done == 0) return;
    std::vector<Index> cuts = slot.cuts;
    if (cuts.back() == T()) cuts.pop_back();
    const auto b = static_cast<Index>(n);
    const OperatorOracle& whole = wholes_[n];
    const OperatorOracle parts = oracle_of(s_, s_.inputs, b, cuts);
    comparison_.begin(
        Change::slots, "the request alone in one call",
        fmt::format("in a slot among others, its calls ending before tokens {}", fmt::join(slot.cuts, ", ")));
    for (const TensorSpec& spec : signature_.outputs) {
      const Matrix<double>& tolerance = get(whole.tolerance, spec.name);
      const bool state = spec.axis == Axis::state;
      if (state && slot.done < T()) continue;
      const Index rows = state ? tolerance.rows() : slot.done * (tolerance.rows() / T());
      comparison_.add(b, spec.name, rows, {alone_[n], whole}, {slot.outputs, parts});
    }
  }

  const TensorSubject& s_;
  const Signature signature_;
  std::mt19937_64 engine_;
  std::vector<TensorSlot> slots_;
  std::vector<Tensors<double>> alone_;  ///< each request run in one call
  std::vector<OperatorOracle> wholes_;  ///< the oracles for these
  Comparison comparison_;
};

}  // namespace

Judgement serving(const TensorSubject& s) { return TensorServer(s).run(); }

}  // namespace samestate::tensor_laws_detail
