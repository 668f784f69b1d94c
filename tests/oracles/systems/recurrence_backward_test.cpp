#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "oracles/systems/family.h"
#include "oracles/systems/operator.h"

/// The rows of the backward passes of the recurrent family: names, heads, settings and absent tensors, against
/// differences of a forward pass that is written here.
namespace samestate {
namespace {

double drawn(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<double>(state >> 40) / 8388608.0 - 1.0;
}

struct Setting {
  Index T = 7, Hk = 2, Hv = 4, dk = 3, dv = 5;
  bool tiled = false, l2norm = false, state = true;
  Cotangent cotangent = Cotangent::both;
  double scale = 0.75;
};

Call call_of(const Setting& s, std::string form) {
  Call call;
  call.form = std::move(form);
  call.tokens = s.T;
  call.chunk = 3;
  call.scale = s.scale;
  call.parameters = {{"Hk", s.Hk},
                     {"Hv", s.Hv},
                     {"dk", s.dk},
                     {"dv", s.dv},
                     {"tiled", s.tiled ? 1 : 0},
                     {"l2norm", s.l2norm ? 1 : 0},
                     {"state", s.state ? 1 : 0},
                     {"cotangent", static_cast<Index>(s.cotangent)}};
  return call;
}

Tensors<double> inputs_of(const Operator& row, const Call& call, std::uint64_t seed) {
  Tensors<double> out;
  for (const TensorSpec& spec : row.signature(call).inputs) {
    Matrix<double> x(spec.rows(), spec.columns());
    for (Index i = 0; i < x.size(); ++i) {
      x.data()[i] = drawn(seed);
      if (spec.name == "g") x.data()[i] = -0.5 - 0.4 * x.data()[i];
      if (spec.name == "beta") x.data()[i] = 0.5 + 0.4 * x.data()[i];
    }
    out.emplace(spec.name, std::move(x));
  }
  return out;
}

/// <d.o, o> + <d.final_state, final state> of the forward pass of these inputs.
double loss(const Family& family, const Setting& s, const Tensors<double>& x) {
  double sum = 0.0;
  for (Index h = 0; h < s.Hv; ++h) {
    const Index key = s.tiled ? h % s.Hk : h / (s.Hv / s.Hk);
    Matrix<double> S = Matrix<double>::Zero(s.dk, s.dv);
    if (s.state) S = get(x, "initial_state").middleRows(h * s.dk, s.dk);
    for (Index t = 0; t < s.T; ++t) {
      Vector<double> q = get(x, "q").row(t * s.Hk + key).transpose();
      Vector<double> k = get(x, "k").row(t * s.Hk + key).transpose();
      if (s.l2norm) {
        q /= std::sqrt(q.squaredNorm() + 1e-6);
        k /= std::sqrt(k.squaredNorm() + 1e-6);
      }
      Vector<double> u = get(x, "v").row(t * s.Hv + h).transpose();
      if (family.gated) S *= std::exp(get(x, "g")(t * s.Hv + h, 0));
      if (family.delta) u = get(x, "beta")(t * s.Hv + h, 0) * (u - S.transpose() * k);
      S += k * u.transpose();
      if (x.contains("d.o"))
        sum += get(x, "d.o").row(t * s.Hv + h).dot((s.scale * (S.transpose() * q)).transpose());
    }
    if (x.contains("d.final_state"))
      sum += get(x, "d.final_state").middleRows(h * s.dk, s.dk).cwiseProduct(S).sum();
  }
  return sum;
}

/// Every element of every gradient against a central difference of the loss.
void expect_gradients(const Family& family, const Setting& s) {
  const Operator* row = find_operator(std::string(family.name) + ".backward");
  ASSERT_NE(row, nullptr);
  const Tensors<double> x = inputs_of(*row, call_of(s, "recurrent"), 7);
  for (const char* form : {"recurrent", "chunked"}) {
    const Call call = call_of(s, form);
    const Tensors<double> gradients = row->exact(call, x);
    const Signature signature = row->signature(call);
    EXPECT_EQ(gradients.size(), signature.outputs.size());
    for (const TensorSpec& spec : signature.outputs) {
      const Matrix<double>& d = get(gradients, spec.name);
      ASSERT_EQ(d.rows(), spec.rows());
      ASSERT_EQ(d.cols(), spec.columns());
      const std::string name = spec.name.substr(2);
      for (Index i = 0; i < d.size(); ++i) {
        constexpr double kStep = 1e-5;
        Tensors<double> more = x, less = x;
        more.at(name).data()[i] += kStep;
        less.at(name).data()[i] -= kStep;
        const double difference = (loss(family, s, more) - loss(family, s, less)) / (2.0 * kStep);
        ASSERT_NEAR(d.data()[i], difference, 1e-8 * std::max(1.0, std::abs(difference)))
            << family.name << " " << form << " " << spec.name << "[" << i << "]";
      }
    }
  }
}

TEST(RecurrenceBackward, GradientsAreThoseOfTheForwardPass) {
  for (const Family& family : families()) {
    expect_gradients(family, {});
    expect_gradients(family, {.Hk = 1, .Hv = 3, .l2norm = true});
    expect_gradients(family, {.tiled = true, .scale = -2.0});
  }
}

TEST(RecurrenceBackward, AnAbsentTensorIsZero) {
  const Family& family = family_named("gated_delta_rule");
  expect_gradients(family, {.state = false});
  expect_gradients(family, {.cotangent = Cotangent::o});
  expect_gradients(family, {.state = false, .cotangent = Cotangent::state});
}

TEST(RecurrenceBackward, ACallSaysWhichTensorsItHas) {
  const Operator& row = *find_operator("retention.backward");
  const auto names = [&](const Setting& s) {
    std::string text;
    const Signature signature = row.signature(call_of(s, "recurrent"));
    for (const TensorSpec& spec : signature.inputs) text += spec.name + " ";
    for (const TensorSpec& spec : signature.outputs) text += spec.name + " ";
    return text;
  };
  EXPECT_EQ(names({}), "q k v g initial_state d.o d.final_state d.q d.k d.v d.g d.initial_state ");
  EXPECT_EQ(names({.state = false, .cotangent = Cotangent::o}), "q k v g d.o d.q d.k d.v d.g ");
  EXPECT_EQ(names({.cotangent = Cotangent::state}),
            "q k v g initial_state d.final_state d.q d.k d.v d.g d.initial_state ");
  EXPECT_THROW((void)row.signature(call_of({.Hk = 2, .Hv = 3}, "recurrent")), Error);
}

TEST(RecurrenceBackward, WithoutTokensTheStatesGradientIsHandedBack) {
  const Operator& row = *find_operator("gated_delta_rule.backward");
  const Setting s{.T = 0};
  for (const char* form : {"recurrent", "chunked"}) {
    const Call call = call_of(s, form);
    const Tensors<double> x = inputs_of(row, call, 3);
    EXPECT_EQ(get(row.exact(call, x), "d.initial_state"), get(x, "d.final_state")) << form;
  }
}

}  // namespace
}  // namespace samestate
