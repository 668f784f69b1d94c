#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/systems/tensor_comparison.h"
#include "oracles/rounding.h"

/// The law `pool` of systems whose states lie in the slots of a pool.
namespace samestate::tensor_laws_detail {
namespace {

/// What the rows that nobody owns hold in the second run: a number of every format, and none of a state at hand.
constexpr float kNobodys = 1024.0F;

/// Which rows of a pool a request owns.
struct Owned {
  Index slots = 0;
  Index slot = -1;  ///< none

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

/// Every request in the next slot, the last one's in the first, its own rows moved there and the others nobody's.
std::vector<CaseTensor> in_the_next_slot(std::vector<CaseTensor> inputs, Index batch) {
  const std::vector<CaseTensor> before = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CaseTensor& x = inputs[i];
    if (x.spec.content == Content::slot) {
      for (float& slot : x.data)
        slot = slot < 0.0F ? slot : static_cast<float>((std::lround(slot) + 1) % x.spec.slots);
    }
    if (x.spec.axis != Axis::state) continue;
    std::fill(x.data.begin(), x.data.end(), kNobodys);
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

/// `rows` where `takes` says so, else zeros.
template <class Takes>
Matrix<double> only(Matrix<double> x, const Takes& takes) {
  for (Index i = 0; i < x.rows(); ++i) {
    if (!takes(i)) x.row(i).setZero();
  }
  return x;
}

/// A pool's rows where the request of the turned run finds them, as the first run has them.
Matrix<double> turned_back(const Matrix<double>& pool, Index slots) {
  const Index each = pool.rows() / slots;
  Matrix<double> x(pool.rows(), pool.cols());
  x << pool.bottomRows(pool.rows() - each), pool.topRows(each);
  return x;
}

}  // namespace

Judgement pool(const TensorSubject& s) {
  if (slots_of(s.inputs).spec.slots < 2)
    return inapplicable("one slot: no row that the request does not own");
  const std::vector<CaseTensor> elsewhere = in_the_next_slot(s.inputs, s.r.c.B);
  const std::vector<Tensors<double>> first = s.run(s.inputs, {});
  const std::vector<Tensors<double>> second = s.run(elsewhere, {});
  const Signature signature = s.system.signature(s.r.c);
  // Apart: what stays says nothing of how well what changes is known.
  Comparison unowned(s.trace), owned(s.trace);
  // Bit for bit, but for what a contract that stores states in fewer takes of them.
  const auto stays = [&](const std::vector<CaseTensor>& inputs, const std::vector<Tensors<double>>& run) {
    unowned.begin(Change::pool, "the rows of the pool that are not the slot's, as they were given",
                  "as the call left them");
    for (Index b = 0; b < s.r.c.B; ++b) {
      const Owned own = owned_by(inputs, b);
      const Tensors<double> given = sequence_of(inputs, b);
      for (const TensorSpec& spec : signature.outputs) {
        if (spec.axis != Axis::state) continue;
        const auto others = [&](Index row) { return !own.has(row, spec.rows()); };
        const Tensors<double> before{{spec.name, only(get(given, spec.name), others)}};
        const Tensors<double> after{
            {spec.name, only(get(run[static_cast<std::size_t>(b)], spec.name), others)}};
        OperatorOracle exact;
        exact.exact = before;
        // Half: the law takes the sum of both sides'.
        exact.tolerance = {{spec.name, get(before, spec.name).unaryExpr([&](double x) {
                              return std::abs(x - round_to(x, s.r.contract->state)) / 2;
                            })}};
        unowned.add(b, spec.name, spec.rows(), {before, exact}, {after, exact});
      }
    }
  };
  stays(s.inputs, first);
  stays(elsewhere, second);
  owned.begin(Change::pool, "the request in its slot",
              fmt::format("in the next one, all other rows of the pool {:g}", kNobodys));
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
  moved.rows += stayed.rows;
  return moved;
}

}  // namespace samestate::tensor_laws_detail
