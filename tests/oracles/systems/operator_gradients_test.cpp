#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "oracles/bounds/logistic_complement.h"
#include "oracles/contracts.h"
#include "oracles/systems/end_to_end.h"
#include "oracles/systems/judge_operator.h"
#include "reference/backward/gates.h"

/// The rows of the backward passes of operators: each gradient against differences of the forward row, sums over sequences,
/// and formats.
namespace samestate {
namespace {

std::vector<const Operator*> gradient_rows() {
  std::vector<const Operator*> rows;
  for (const Operator& row : operators()) {
    if (row.name.ends_with(".backward") && row.family == nullptr) rows.push_back(&row);
  }
  return rows;
}

const Operator& forward_of(const Operator& row) {
  return *find_operator(row.name.substr(0, row.name.size() - std::string_view(".backward").size()));
}

Call standard_call(const Operator& row, Index tokens) {
  Call call;
  call.form = row.forms.front().name;
  call.tokens = tokens;
  for (const Parameter& p : row.parameters) call.parameters.emplace(p.name, p.standard);
  for (const std::string_view narrow : {"D", "C", "d", "dv"}) {
    if (call.parameters.contains(narrow)) call.parameters.at(narrow) = 6;
  }
  if (call.parameters.contains("pairs")) call.parameters.at("pairs") = 2;
  return call;
}

Tensors<double> drawn_inputs(const Operator& row, const Call& call, double seed) {
  Tensors<double> out;
  for (const TensorSpec& spec : row.signature(call).inputs) {
    Matrix<double> x(spec.rows(), spec.columns());
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = std::sin(seed += 1.7);
    out.emplace(spec.name, std::move(x));
  }
  return out;
}

/// The sum of <d.y, y> over the outputs of the forward row.
double loss(const Operator& row, const Call& call, const Tensors<double>& x) {
  double sum = 0.0;
  for (const auto& [name, y] : forward_of(row).exact(call, x)) {
    if (x.contains("d." + name)) sum += get(x, "d." + name).cwiseProduct(y).sum();
  }
  return sum;
}

/// A convolution reads a state and gives one of the same name, whose cotangent is an input and whose gradient is an output.
void expect_differences(const Operator& row, const Call& call) {
  const Tensors<double> x = drawn_inputs(row, call, 0.3);
  const Tensors<double> gradients = row.exact(call, x);
  const Signature signature = row.signature(call);
  ASSERT_EQ(gradients.size(), signature.outputs.size()) << row.name;
  for (const TensorSpec& spec : signature.outputs) {
    const Matrix<double>& d = get(gradients, spec.name);
    ASSERT_EQ(d.rows(), spec.rows()) << row.name << " " << spec.name;
    ASSERT_EQ(d.cols(), spec.columns()) << row.name << " " << spec.name;
    for (Index i = 0; i < d.size(); ++i) {
      constexpr double kStep = 1e-5;
      Tensors<double> more = x, less = x;
      more.at(spec.name.substr(2)).data()[i] += kStep;
      less.at(spec.name.substr(2)).data()[i] -= kStep;
      const double difference = (loss(row, call, more) - loss(row, call, less)) / (2.0 * kStep);
      ASSERT_NEAR(d.data()[i], difference, 1e-8 * std::max(1.0, std::abs(difference)))
          << row.name << " " << spec.name << "[" << i << "]";
    }
  }
}

TEST(OperatorGradients, AreThoseOfTheForwardRow) {
  EXPECT_EQ(gradient_rows().size(), 12U);
  for (const Operator* row : gradient_rows()) {
    Call call = standard_call(*row, 5);
    expect_differences(*row, call);
    for (const std::string_view without : {"q_lora", "dr"}) {
      if (!call.parameters.contains(without)) continue;
      Call other = call;
      other.parameters.at(without) = 0;
      expect_differences(*row, other);
    }
    for (const std::string_view setting : {"interleaved", "bias"}) {
      if (!call.parameters.contains(setting)) continue;
      call.parameters.at(setting) = 1;
      expect_differences(*row, call);
    }
    if (!call.parameters.contains("activation")) continue;
    call.parameters.at("activation") = 0;
    expect_differences(*row, call);
  }
}

// T = 1 and T = 2 < W - 1: the cotangent of the state that is handed on reaches into the state that came in.
TEST(OperatorGradients, AConvolutionMayBeShorterThanItsTapsAndLackACotangent) {
  const Operator& row = *find_operator("short_convolution.backward");
  for (const Index tokens : {1, 2}) expect_differences(row, standard_call(row, tokens));
  for (const Cotangent given : {Cotangent::o, Cotangent::state}) {
    Call call = standard_call(row, 5);
    call.parameters.at("cotangent") = static_cast<Index>(given);
    expect_differences(row, call);
  }
  Call one_tap = standard_call(row, 4);
  one_tap.parameters.at("W") = 1;
  expect_differences(row, one_tap);
}

TEST(OperatorGradients, OfAWeightIsTheSumOverSequencesEndToEnd) {
  const Operator& row = *find_operator("short_convolution.backward");
  Call call = standard_call(row, 7);
  call.parameters.at("bias") = 1;
  Tensors<double> both = drawn_inputs(row, call, 0.9);
  const Index rows = call.at("W") - 1;
  for (const char* state : {"state", "d.state"}) {
    const Matrix<double> one = get(both, state);
    both.at(state).resize(3 * rows, one.cols());
    both.at(state) << one, -0.5 * one, 0.25 * one;
  }
  Matrix<double> lengths(3, 1);
  lengths << 5, 0, 2;
  both.emplace(kLengths, lengths);
  const Tensors<double> together = row.exact(call, both);
  Matrix<double> kernel = Matrix<double>::Zero(call.at("C"), call.at("W")),
                 bias = Matrix<double>::Zero(1, call.at("C"));
  Index first = 0;
  for (Index n = 0; n < 3; ++n) {
    Call one = call;
    one.tokens = static_cast<Index>(lengths(n, 0));
    Tensors<double> alone = both;
    alone.erase(alone.find(kLengths));
    for (const char* name : {"x", "d.y"})
      alone.at(name) = get(both, name).middleRows(first, one.tokens).eval();
    for (const char* name : {"state", "d.state"})
      alone.at(name) = get(both, name).middleRows(n * rows, rows).eval();
    const Tensors<double> gradients = row.exact(one, alone);
    EXPECT_EQ(get(gradients, "d.x"), get(together, "d.x").middleRows(first, one.tokens)) << n;
    EXPECT_EQ(get(gradients, "d.state"), get(together, "d.state").middleRows(n * rows, rows)) << n;
    kernel += get(gradients, "d.kernel");
    bias += get(gradients, "d.bias");
    first += one.tokens;
  }
  EXPECT_LT((get(together, "d.kernel") - kernel).norm(), 1e-14 * kernel.norm());
  EXPECT_LT((get(together, "d.bias") - bias).norm(), 1e-14 * bias.norm());
}

// Attention stays within a sequence, and the gradients of weights are sums over all of them.
TEST(OperatorGradients, OfALayerOfAttentionAreSumsOverSequencesEndToEnd) {
  const Operator& row = *find_operator("gated_attention.backward");
  const Call call = standard_call(row, 7);
  Tensors<double> both = drawn_inputs(row, call, 0.9);
  Matrix<double> lengths(3, 1);
  lengths << 4, 0, 3;
  both.emplace(kLengths, lengths);
  const Tensors<double> together = row.exact(call, both);
  Tensors<double> sums;
  Index first = 0;
  for (const Index tokens : {4, 3}) {
    Call one = call;
    one.tokens = tokens;
    Tensors<double> alone = both;
    alone.erase(alone.find(kLengths));
    for (const char* name : {"hidden", "d.out", "cosine", "sine"})
      alone.at(name) = get(both, name).middleRows(first, tokens).eval();
    for (const auto& [name, x] : row.exact(one, alone)) {
      if (name == "d.hidden") {
        EXPECT_LT((x - get(together, name).middleRows(first, tokens)).norm(), 1e-14 * x.norm());
      } else if (first == 0) {
        sums.emplace(name, x);
      } else {
        sums.at(name) += x;
      }
    }
    first += tokens;
  }
  ASSERT_EQ(sums.size(), 6U);
  for (const auto& [name, x] : sums) EXPECT_LT((x - get(together, name)).norm(), 1e-14 * x.norm()) << name;
}

// Whichever form of the forward pass left o, the gradients are the same.
TEST(OperatorGradients, OfAttentionAreThoseOfEveryForm) {
  for (const char* name :
       {"softmax_attention.backward", "gated_attention.backward", "latent_attention.backward"}) {
    const Operator& row = *find_operator(name);
    Call call = standard_call(row, 9);
    call.chunk = 4;
    const Tensors<double> x = drawn_inputs(row, call, 0.4), first = row.exact(call, x);
    for (const OperatorForm& form : row.forms) {
      call.form = form.name;
      for (const auto& [output, y] : row.exact(call, x))
        EXPECT_LT((y - get(first, output)).norm(), 1e-14 * y.norm()) << form.name << " " << output;
    }
  }
}

// Autograd adds up what comes back to the sum of a residual norm in the order in which its uses were made: the
// cotangent of the sum itself may come first, and the square's two halves one at a time.
TEST(OperatorGradients, ACotangentOfASumMayBeAddedFirst) {
  const Operator& row = *find_operator("residual_rms_norm.backward");
  const Call call = standard_call(row, 300);
  Tensors<double> x = drawn_inputs(row, call, 0.3);
  for (auto& [name, of] : x) of = of.cast<float>().cast<double>();
  x.at("d.y") /= 64.0;
  Tensors<Running> given;
  for (const auto& [name, of] : x) given.emplace(name, of.cast<Running>());
  const RunningScope scope(RunningModel::of(contract_named("fp32")));
  const Matrix<Running> bound = get(row.running(call, given), "d.x");
  double worst = 0.0;
  for (Index t = 0; t < bound.rows(); ++t) {
    const Eigen::RowVectorXf sum = (get(x, "x") + get(x, "residual")).row(t).cast<float>();
    const Eigen::RowVectorXf dn = get(x, "d.y").row(t).cast<float>().cwiseProduct(
        (Matrix<double>::Ones(1, sum.size()) + get(x, "weight").reshaped<Eigen::RowMajor>(1, sum.size()))
            .cast<float>());
    const auto width = static_cast<float>(sum.size());
    const float r = 1.0F / std::sqrt(sum.squaredNorm() / width + 1e-6F);
    const float half = 0.5F * r * r * r * sum.dot(dn) / width;
    for (Index i = 0; i < sum.size(); ++i) {
      const float first = static_cast<float>(get(x, "d.sum")(t, i));
      const float d = ((first + dn(i) * r) - half * sum(i)) - half * sum(i);
      worst = std::max(worst, std::abs(d - bound(t, i).value()) / bound(t, i).error());
    }
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.5);
}

// A gradient has the format of what it is the gradient of: of a norm's weight and of rates fp32, of a matrix the contract's.
TEST(OperatorGradients, HaveTheFormatsOfTheirTensors) {
  const auto format = [](const char* system, const char* output) {
    const Operator& row = *find_operator(system);
    const Call call = standard_call(row, 3);
    const OperatorOracle oracle =
        operator_oracle(row, call, drawn_inputs(row, call, 0.1), {}, contract_named("bf16"));
    return oracle.format(output, contract_named("bf16").output);
  };
  EXPECT_EQ(format("rms_norm.backward", "d.x"), Format::bf16);
  EXPECT_EQ(format("rms_norm.backward", "d.weight"), Format::fp32);
  EXPECT_EQ(format("activation_gates.backward", "d.A_log"), Format::fp32);
  EXPECT_EQ(format("activation_gates.backward", "d.b"), Format::bf16);
  EXPECT_EQ(format("short_convolution.backward", "d.kernel"), Format::bf16);
}

// Both ways to compute 1 - sigma(x) in fp32 lie within the error, at x where they differ by far more than a rounding.
TEST(LogisticComplement, CoversSubtractionAndReflection) {
  const RunningScope scope(RunningModel::of(contract_named("fp32")));
  for (const float x : {-20.0F, -3.0F, -0.1F, 0.4F, 2.5F, 7.0F, 12.0F, 16.5F, 40.0F}) {
    const Running y = logistic_complement(Running(static_cast<double>(x)));
    const double exact = 1.0 / (1.0 + std::exp(static_cast<double>(x)));
    EXPECT_NEAR(y.value(), exact, 1e-15 * exact) << x;
    const float subtracted = 1.0F - 1.0F / (1.0F + std::exp(-x)), reflected = 1.0F / (1.0F + std::exp(x));
    EXPECT_LE(std::abs(static_cast<double>(subtracted) - exact), y.error()) << x;
    EXPECT_LE(std::abs(static_cast<double>(reflected) - exact), y.error()) << x;
    EXPECT_LT(y.error(), 1e-6) << x;
  }
}

}  // namespace
}  // namespace samestate
