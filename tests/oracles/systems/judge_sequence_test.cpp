#include "oracles/systems/judge_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracles/contracts.h"
#include "oracles/numbers.h"
#include "oracles/systems/operator.h"

namespace samestate {
namespace {

/// Normalised retention of queries that are all but orthogonal to every key: q S cancels where q k^T is small at once.
struct Orthogonal {
  const Operator& op = *find_operator("normalised_retention");
  Call call;
  Tensors<double> inputs;

  Orthogonal() {
    call.form = "chunked";
    call.tokens = 130;
    call.chunk = 130;
    call.parameters = {{"H", 1}, {"dk", 2}, {"dv", 4}};
    for (const TensorSpec& spec : op.signature(call).inputs) {
      Matrix<double> x = Matrix<double>::NullaryExpr(spec.rows(), spec.columns(), [&](Index i, Index j) {
        if (spec.name == "q") return 1.0;
        if (spec.name == "k") return j == 0 ? 1.0 : -1.0 + 0x1p-6;
        return std::sin(static_cast<double>(7 * i + j + 1));
      });
      if (spec.axis == Axis::state) x.setZero();
      inputs.emplace(spec.name, std::move(x));
    }
  }
};

TEST(JudgeSequence, WithoutRoundingPointsAKernelMayGoInChunksOfItsOwn) {
  const Orthogonal data;
  const auto never = [](Verdict) { return false; };
  for (const std::string_view name : {"fp32", "bf16"}) {
    const Contract& contract = contract_named(name);
    const OperatorOracle oracle = operator_oracle(data.op, data.call, data.inputs, {}, contract);
    Call by_token = data.call;
    by_token.chunk = 1;
    const Tensors<double> others = operator_oracle(data.op, by_token, data.inputs, {}, contract).tolerance;
    const std::string output = data.op.signature(data.call).outputs.front().name;
    const Matrix<double>&own = get(oracle.tolerance, output), &other = get(others, output);
    Index row = 0, column = 0;
    const double times = other.cwiseQuotient(own).maxCoeff(&row, &column);
    const auto verdict_of = [&](double bounds) {
      Tensors<double> actual = oracle.exact;
      actual[output](row, column) += bounds * std::max(own(row, column), other(row, column));
      const std::vector<Index> cuts;
      return judge_sequence({data.op, data.call, data.inputs, cuts, contract, oracle}, actual, 1, kGatePolicy,
                            {never, never})
          .verdict;
    };
    if (name == "fp32") {
      EXPECT_GT(times, 2.0);
      EXPECT_EQ(verdict_of(0.9), Verdict::pass);
    }
    EXPECT_EQ(verdict_of(1.1), Verdict::fail) << name;
  }
}

}  // namespace
}  // namespace samestate
