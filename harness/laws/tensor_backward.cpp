#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/laws/tensor_comparison.h"
#include "harness/run/judge_batch.h"
#include "oracles/systems/family.h"

/// Laws of gradients: their sum over parts of a sequence, their independence of earlier cotangents, and their
/// linearity in the cotangents; and what all laws of gradients share.
namespace samestate::tensor_laws_detail {
namespace {

bool is_cotangent(const CaseTensor& x) { return x.spec.name.starts_with("d."); }

/// The tokens [begin, end) of a tensor [B, T, ..]; any other tensor as it is.
CaseTensor tokens_of_tensor(const CaseTensor& x, Index B, Index T, Index begin, Index end) {
  if (x.spec.axis != Axis::tokens) return x;
  CaseTensor part = x;
  part.spec.shape.front() = part.shape[1] = end - begin;
  part.data.clear();
  const Index each = x.spec.size() / T;
  for (Index b = 0; b < B; ++b) {
    const auto row = x.data.begin() + b * T * each;
    part.data.insert(part.data.end(), row + begin * each, row + end * each);
  }
  return part;
}

/// The states after the tokens of these inputs, computed in float64 and rounded to fp32.
CaseTensor state_after(const Resolved& r, const Family& family, const std::vector<CaseTensor>& inputs) {
  const Batch batch = forward_call(r, inputs);
  const Case& c = r.c;
  CaseTensor state{{"initial_state", Axis::state, {c.Hv, c.dk, c.dv}, Content::offset},
                   true,
                   {c.B, c.Hv, c.dk, c.dv},
                   {},
                   {}};
  for (Index b = 0; b < c.B; ++b) {
    for (Index h = 0; h < c.Hv; ++h) {
      const Matrix<double> S = family.recurrent(sequence_of(batch, b, h)).state;
      for (const double x : S.reshaped<Eigen::RowMajor>()) state.data.push_back(static_cast<float>(x));
    }
  }
  return state;
}

/// Adds what one run may be away from its expectation to what another may be.
void widen(OperatorOracle& oracle, const OperatorOracle& by, Index first, Index rows, const std::string& name,
           Index from) {
  oracle.tolerance.at(name).middleRows(first, rows) += by.tolerance.at(name).middleRows(from, rows);
}

}  // namespace

CaseTensor* named(std::vector<CaseTensor>& tensors, std::string_view name) {
  const auto at = std::ranges::find(tensors, name, [](const CaseTensor& x) { return x.spec.name; });
  return at == tensors.end() ? nullptr : &*at;
}

Resolved changed(const Resolved& r, Index tokens, bool state, std::string_view cotangent) {
  Resolved other = r;
  other.c.T = tokens;
  if (state) other.c.state = "random";
  other.c.cotangent = cotangent;
  return other;
}

OperatorOracle oracle_as(const TensorSubject& s, const Resolved& r, const std::vector<CaseTensor>& inputs,
                         Index b) {
  return oracle_of({r, s.system, s.inputs, s.native, s.run_as, nullptr, s.first_sample, s.samples}, inputs, b,
                   {});
}

Batch forward_call(const Resolved& r, std::vector<CaseTensor> inputs) {
  Batch batch;
  batch.shape = batch_shape_of(r);
  const std::pair<const char*, std::vector<float>*> members[] = {
      {"q", &batch.q}, {"k", &batch.k},       {"v", &batch.v},
      {"g", &batch.g}, {"beta", &batch.beta}, {"initial_state", &batch.initial_state}};
  for (const auto& [name, data] : members) {
    if (CaseTensor* x = named(inputs, name); x != nullptr) *data = std::move(x->data);
  }
  return batch;
}

Judgement backward_split(const TensorSubject& s) {
  const Case& c = s.r.c;
  if (s.r.contract->state != Format::fp32)
    return law_says_nothing(
        "the state between the two parts is given in fp32, and the contract keeps 16 bits of it");
  Comparison comparison(s.trace);
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  const std::vector<OperatorOracle> wholes = oracles_of(s, s.inputs, {});
  for (const Index cut : cuts_worth_trying(c.T, s.r.chunk)) {
    const Resolved head = changed(s.r, cut, false, c.cotangent == "o" ? "both" : c.cotangent);
    const Resolved tail = changed(s.r, c.T - cut, true, c.cotangent);
    std::vector<CaseTensor> before, after;
    for (const CaseTensor& x : s.inputs) {
      before.push_back(tokens_of_tensor(x, c.B, c.T, 0, cut));
      if (x.spec.name != "initial_state") after.push_back(tokens_of_tensor(x, c.B, c.T, cut, c.T));
    }
    after.push_back(state_after(head, *s.system.row.family, before));
    const std::vector<Tensors<double>> second = s.run_as(tail, after, {});
    // The gradient of the state between the parts is the kernel's own.
    CaseTensor handed = after.back();
    handed.spec.name = "d.final_state";
    handed.data.clear();
    for (const Tensors<double>& of : second) {
      for (const double x : get(of, "d.initial_state").reshaped<Eigen::RowMajor>())
        handed.data.push_back(static_cast<float>(x));
    }
    std::erase_if(before, [](const CaseTensor& x) { return x.spec.name == "d.final_state"; });
    before.push_back(std::move(handed));
    const std::vector<Tensors<double>> first = s.run_as(head, before, {});
    comparison.begin(Change::cotangents, "all tokens in one call",
                     fmt::format("cut before token {}, the gradient of the state handed back", cut), cut);
    for (Index b = 0; b < c.B; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const OperatorOracle of_head = oracle_as(s, head, before, b), of_tail = oracle_as(s, tail, after, b);
      // The gradient that is handed back may be as far off as its own tolerance, and the first part turns that error
      // into a difference which is known: that of its expectation from the whole run's.
      OperatorOracle exact = of_tail;
      for (auto& [name, tolerance] : exact.tolerance) tolerance.setZero();
      const std::string state = "d.initial_state";
      comparison.add(b, state, get(second[at], state).rows(), {exact.exact, exact}, {second[at], of_tail});
      Tensors<double> both;
      OperatorOracle parts = wholes[at];
      for (const auto& [name, whole] : one[at]) {
        Matrix<double> x = get(first[at], name);
        const Index each = name == state ? 0 : whole.rows() / c.T;
        const Index rows = name == state ? x.rows() : each * cut;
        const Matrix<double>& expected = get(wholes[at].exact, name);
        parts.tolerance.at(name).topRows(rows) +=
            (get(of_head.exact, name).topRows(rows) - expected.topRows(rows)).cwiseAbs();
        widen(parts, of_head, 0, rows, name, 0);
        if (name != state) {
          const Matrix<double>& y = get(second[at], name);
          Matrix<double> joined(x.rows() + y.rows(), x.cols());
          joined << x, y;
          x = std::move(joined);
          widen(parts, of_tail, rows, each * (c.T - cut), name, 0);
        }
        both.emplace(name, std::move(x));
      }
      for (const auto& [name, whole] : one[at])
        comparison.add(b, name, whole.rows(), {one[at], wholes[at]}, {both, parts});
    }
  }
  return comparison.take("all tokens in one call, and cut in two with the gradient of the state handed back");
}

Judgement backward_causality(const TensorSubject& s) {
  const Case& c = s.r.c;
  if (c.cotangent == "state")
    return law_says_nothing("cotangent=state: no output of a token has a cotangent");
  Comparison comparison(s.trace);
  const std::vector<Tensors<double>> before = s.run(s.inputs, {});
  const std::vector<OperatorOracle> of_before = oracles_of(s, s.inputs, {});
  bool effect = false;
  for (const Index t : cuts_worth_trying(c.T, s.r.chunk)) {
    std::vector<CaseTensor> other = s.inputs;
    CaseTensor& d_o = *named(other, "d.o");
    const Index each = d_o.spec.size() / c.T;
    for (Index b = 0; b < c.B; ++b) {
      const auto row = d_o.data.begin() + b * c.T * each;
      std::for_each(row, row + t * each, [](float& x) { x *= -0.5F; });
    }
    const std::vector<Tensors<double>> after = s.run(other, {});
    comparison.begin(Change::cotangents, "the cotangents as they are",
                     fmt::format("d.o of the tokens before {} halved, with its sign turned", t), t);
    for (Index b = 0; b < c.B; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const OperatorOracle of_after = oracle_of(s, other, b, {});
      for (const auto& [name, x] : before[at]) {
        effect = effect || x != get(after[at], name);
        if (name == "d.initial_state") continue;
        const Index first = t * (x.rows() / c.T);
        comparison.add(b, name, x.rows(), {before[at], of_before[at]}, {after[at], of_after}, first);
      }
    }
  }
  return if_effective(
      comparison.take("the cotangents as they are, and with those of earlier outputs changed"), effect,
      "the changed cotangents changed nothing at all");
}

Judgement backward_linearity(const TensorSubject& s) {
  const Case& c = s.r.c;
  Comparison comparison(s.trace);
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  const std::vector<OperatorOracle> oracles = oracles_of(s, s.inputs, {});
  std::vector<CaseTensor> doubled = s.inputs;
  for (CaseTensor& x : doubled) {
    if (is_cotangent(x)) std::ranges::for_each(x.data, [](float& value) { value *= 2.0F; });
  }
  const std::vector<Tensors<double>> twice = s.run(doubled, {});
  comparison.begin(Change::cotangents, "the gradients", "half of those of twice the cotangents");
  for (Index b = 0; b < c.B; ++b) {
    const auto at = static_cast<std::size_t>(b);
    Tensors<double> halved = twice[at];
    for (auto& [name, x] : halved) x *= 0.5;
    // Twice a gradient may be beyond the range of its format.
    OperatorOracle of_half = oracle_of(s, doubled, b, {});
    for (auto& [name, x] : of_half.exact) x *= 0.5;
    for (auto& [name, x] : of_half.tolerance) x *= 0.5;
    for (const auto& [name, x] : halved)
      comparison.add(b, name, x.rows(), {one[at], oracles[at]}, {halved, of_half});
  }
  if (s.system.has_key("cotangent") && c.cotangent == "both") {
    const auto without = [&](Axis absent) {
      std::vector<CaseTensor> kept = s.inputs;
      std::erase_if(kept, [&](const CaseTensor& x) { return is_cotangent(x) && x.spec.axis == absent; });
      return kept;
    };
    const std::vector<CaseTensor> of_o = without(Axis::state), of_state = without(Axis::tokens);
    const Resolved only_o = changed(s.r, c.T, false, "o"), only_state = changed(s.r, c.T, false, "state");
    const std::vector<Tensors<double>> x = s.run_as(only_o, of_o, {}), y = s.run_as(only_state, of_state, {});
    comparison.begin(Change::cotangents, "the gradients of both cotangents",
                     "the sum of those of each alone");
    for (Index b = 0; b < c.B; ++b) {
      const auto at = static_cast<std::size_t>(b);
      OperatorOracle sum = oracle_as(s, only_o, of_o, b);
      const OperatorOracle other = oracle_as(s, only_state, of_state, b);
      Tensors<double> values = x[at];
      for (auto& [name, value] : values) {
        value += get(y[at], name);
        sum.exact.at(name) += get(other.exact, name);
        sum.tolerance.at(name) += get(other.tolerance, name);
      }
      for (const auto& [name, value] : values)
        comparison.add(b, name, value.rows(), {one[at], oracles[at]}, {values, sum});
    }
  }
  return comparison.take("the gradients, and those of other multiples and parts of the cotangents");
}

}  // namespace samestate::tensor_laws_detail
