#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

#include "harness/laws/tensor_comparison.h"
#include "oracles/rounding.h"

/// The law `pool` of systems whose states lie in the slots of a pool.
namespace samestate::tensor_laws_detail {
namespace {

/// The values that rows without an owner have in the second run. They survive a copy but not arithmetic, and
/// each format has at least one among them that no actual state has.
constexpr float kNobodys[] = {1024.0F,
                              -0.0F,
                              std::numeric_limits<float>::denorm_min(),
                              std::bit_cast<float>(0x7fc12345U),  // a quiet NaN with a payload of its own
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::max()};

/// The rows of a pool that a request owns.
struct Owned {
  Index slots = 0;
  Index slot = -1;  ///< -1 if the request has none

  [[nodiscard]] bool has(Index row, Index rows) const { return slot >= 0 && row / (rows / slots) == slot; }
};

const CaseTensor& slots_of(const std::vector<CaseTensor>& inputs) {
  return *std::find_if(inputs.begin(), inputs.end(),
                       [](const CaseTensor& x) { return x.spec.content == Content::slot; });
}

Owned owned_by(const std::vector<CaseTensor>& inputs, Index b) {
  const CaseTensor& slot = slots_of(inputs);
  return {slot.spec.slots, std::lround(slot.data[static_cast<std::size_t>(b)])};
}

/// Moves every request and its rows to the next slot, and the last one's to the first; the other rows then
/// belong to no request.
std::vector<CaseTensor> in_the_next_slot(std::vector<CaseTensor> inputs, Index batch) {
  const std::vector<CaseTensor> before = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CaseTensor& x = inputs[i];
    if (x.spec.content == Content::slot) {
      for (float& slot : x.data)
        slot = slot < 0.0F ? slot : static_cast<float>((std::lround(slot) + 1) % x.spec.slots);
    }
    if (x.spec.axis != Axis::state) continue;
    for (std::size_t n = 0; n < x.data.size(); ++n) x.data[n] = kNobodys[n % std::size(kNobodys)];
    for (Index b = 0; b < batch; ++b) {
      const Owned own = owned_by(before, b);
      if (own.slot < 0) continue;
      const Index size = x.spec.size() / own.slots;
      std::copy_n(before[i].data.begin() + (b * own.slots + own.slot) * size, size,
                  x.data.begin() + (b * own.slots + (own.slot + 1) % own.slots) * size);
    }
  }
  return inputs;
}

/// Returns `rows` where `takes` is true and zeros elsewhere.
template <class Takes>
Matrix<double> only(Matrix<double> x, const Takes& takes) {
  for (Index i = 0; i < x.rows(); ++i) {
    if (!takes(i)) x.row(i).setZero();
  }
  return x;
}

/// Returns a pool's rows in the order of the slots of the first run.
Matrix<double> turned_back(const Matrix<double>& pool, Index slots) {
  const Index each = pool.rows() / slots;
  Matrix<double> x(pool.rows(), pool.cols());
  x << pool.bottomRows(pool.rows() - each), pool.topRows(each);
  return x;
}

/// Compares words, to distinguish what numbers do not: non-finite values, which otherwise count as 0 on both
/// sides, and the sign of zero. It remembers the first difference.
class Words {
 public:
  void take(Index b, const std::string& name, Matrix<double>& before, Matrix<double>& after, Format stored) {
    for (Index i = 0; i < before.rows(); ++i) {
      for (Index j = 0; j < before.cols(); ++j) {
        double& x = before(i, j);
        double& y = after(i, j);
        if (std::isfinite(x) && std::isfinite(y) && x != y) continue;
        if (!same(x, y, stored)) fail({b, -1, i, j}, name, x, y);
        if (!std::isfinite(x) || !std::isfinite(y)) x = y = 0.0;
      }
    }
  }

  [[nodiscard]] bool differ() const { return first_.verdict == Verdict::fail; }
  [[nodiscard]] const Judgement& first() const { return first_; }

 private:
  [[nodiscard]] static std::uint32_t word(double x) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(x));
  }
  /// A format with fewer bits than fp32 writes its own words for non-finite values, and rounds large numbers
  /// to infinity.
  [[nodiscard]] static bool same(double x, double y, Format stored) {
    if (word(x) == word(y)) return true;
    return stored != Format::fp32 &&
           ((std::isnan(x) && std::isnan(y)) || word(round_to(x, stored)) == word(y));
  }

  void fail(const Location& at, const std::string& name, double x, double y) {
    if (differ()) return;
    first_.verdict = Verdict::fail;
    first_.gate = "law";
    first_.rows = 1;
    first_.ratio = first_.error = std::numeric_limits<double>::infinity();
    first_.expected = x;
    first_.actual = y;
    first_.worst = at;
    first_.reason = fmt::format(
        "output {}: a row that is not the slot's did not stay the same bit for bit: {:g} (0x{:08x}) became "
        "{:g} "
        "(0x{:08x})",
        name, x, word(x), y, word(y));
  }

  Judgement first_;
};

}  // namespace

Judgement pool(const TensorSubject& s) {
  const std::vector<CaseTensor> elsewhere = in_the_next_slot(s.inputs, s.r.c.B);
  const std::vector<Tensors<double>> first = s.run(s.inputs, {});
  const std::vector<Tensors<double>> second = s.run(elsewhere, {});
  const Signature signature = s.system.signature(s.r.c);
  // These are compared separately: rows that stay the same say nothing about the accuracy of rows that
  // change.
  Comparison unowned(s.trace), owned(s.trace);
  Words words;
  // Rows must stay the same bit for bit, apart from what is rounded away under a contract that stores states
  // in fewer bits.
  const auto stays = [&](const std::vector<CaseTensor>& inputs, const std::vector<Tensors<double>>& run) {
    unowned.begin(Change::pool, kRowsGiven, kRowsLeft);
    for (Index b = 0; b < s.r.c.B; ++b) {
      const Owned own = owned_by(inputs, b);
      const Tensors<double> given = sequence_of(inputs, b);
      for (const TensorSpec& spec : signature.outputs) {
        if (spec.axis != Axis::state) continue;
        const auto others = [&](Index row) { return !own.has(row, spec.rows()); };
        Tensors<double> before{{spec.name, only(get(given, spec.name), others)}};
        Tensors<double> after{{spec.name, only(get(run[static_cast<std::size_t>(b)], spec.name), others)}};
        words.take(b, spec.name, before[spec.name], after[spec.name], s.r.contract->state);
        OperatorOracle exact;
        exact.exact = before;
        // The tolerance is halved, because the law adds those of both sides.
        exact.tolerance = {{spec.name, get(before, spec.name).unaryExpr([&](double x) {
                              return std::abs(x - round_to(x, s.r.contract->state)) / 2;
                            })}};
        unowned.add(b, spec.name, spec.rows(), {before, exact}, {after, exact});
      }
    }
  };
  stays(s.inputs, first);
  stays(elsewhere, second);
  owned.begin(
      Change::pool, "the request in its slot",
      fmt::format("in the next slot, with all other rows of the pool {:g}, -0, subnormal, infinite or NaN",
                  kNobodys[0]));
  for (Index b = 0; b < s.r.c.B; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const Owned own = owned_by(s.inputs, b);
    const OperatorOracle oracle = oracle_of(s, s.inputs, b, {});
    for (const TensorSpec& spec : signature.outputs) {
      const Matrix<double>& x = get(first[at], spec.name);
      const Matrix<double>& y = get(second[at], spec.name);
      if (spec.axis != Axis::state) {
        owned.add(b, spec.name, x.rows(), {first[at], oracle}, {second[at], oracle});
        continue;
      }
      const auto mine = [&](Index row) { return own.has(row, spec.rows()); };
      const Tensors<double> here{{spec.name, only(x, mine)}};
      const Tensors<double> there{{spec.name, only(turned_back(y, own.slots), mine)}};
      owned.add(b, spec.name, x.rows(), {here, oracle}, {there, oracle});
    }
  }
  const Judgement stayed =
      unowned.take("rows of the pool that are not the slot's, before and after the call");
  Judgement moved = owned.take("a request in its slot, and in another one");
  if (stayed.verdict == Verdict::fail) return stayed;
  if (words.differ()) {
    if (s.trace) s.trace->push_back({Change::pool, kRowsGiven, kRowsLeft, -1, {}, words.first().reason});
    return words.first();
  }
  moved.rows += stayed.rows;
  return moved;
}

}  // namespace samestate::tensor_laws_detail
