/// The backward kernels of the recurrent family, recurrent and chunked, against differences of the forward pass in double and
/// against one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/cpu/backward/chunked.h"
#include "optimized/cpu/products.h"
#include "optimized/cpu/rounding.h"
#include "tests/optimized/backward_call.h"
#include "tests/optimized/contracts.h"

namespace samestate {
namespace {

using testing::backward_kernel;
using testing::BackwardCall;
using testing::differences_of;
using testing::expect_near;
using testing::expect_same;
using testing::for_each_form;
using testing::has_decay;
using testing::has_delta;
using testing::Inputs;
using testing::kDense;
using testing::kForms;
using testing::kNear;
using testing::kSystems;
using testing::make_backward_call;
using testing::relative_error;
using testing::run_backward;
using testing::Shape;
using testing::Values;

TEST(BackwardKernels, GradientsAreDifferencesOfTheForwardPass) {
  for_each_form([](const std::string& system, const std::string& form) {
    for (const bool l2norm : {false, true}) {
      for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
        BackwardCall x = make_backward_call(system, kDense, 4);
        x.forward.l2norm = l2norm;
        x.forward.head_map = map;
        x.forward.scale = 0.7F;
        expect_near(run_backward(x, form), differences_of(x), kNear, system + " " + form);
      }
    }
  });
}

// One value head a key head, widths of several registers, chunks of every kind.
TEST(BackwardKernels, EveryChunkGivesTheGradientsOfTheRecurrence) {
  for (const std::string& system : kSystems) {
    for (const Shape& shape : {Shape{.B = 1, .T = 70, .Hk = 1, .Hv = 1, .dk = 24, .dv = 17},
                               Shape{.B = 1, .T = 33, .Hk = 1, .Hv = 3, .dk = 9, .dv = 40}}) {
      BackwardCall x = make_backward_call(system, shape, 0);
      const Values expected = run_backward(x, "recurrent");
      for (const std::int64_t chunk : {1, 2, 7, 16, 33, 64, 1000}) {
        x.forward.chunk = chunk;
        expect_near(run_backward(x, "chunked"), expected, 3e-6, system + " chunk " + std::to_string(chunk));
      }
    }
  }
}

TEST(BackwardKernels, AbsentTensorsAreZero) {
  for_each_form([](const std::string& system, const std::string& form) {
    const auto zeroed = [](std::vector<float>& x) { std::fill(x.begin(), x.end(), 0.0F); };
    const auto tensors = [](BackwardCall& x) {
      return std::vector<std::vector<float>*>{&x.forward.initial_state, &x.d_o, &x.d_final_state};
    };
    for (int absent = 1; absent < 8; ++absent) {
      BackwardCall without = make_backward_call(system, kDense, 4), with = without;
      for (std::size_t i = 0; i < 3; ++i) {
        if ((absent >> i) % 2 == 0) continue;
        tensors(without)[i]->clear();
        zeroed(*tensors(with)[i]);
      }
      const std::string where = system + " " + form + " " + std::to_string(absent);
      const Values got = run_backward(without, form);
      expect_same(got, run_backward(with, form), where);
      if (absent < 6) expect_near(got, differences_of(without), kNear, where);
    }
  });
}

TEST(BackwardKernels, AResetPassesNothingBack) {
  for (const std::string& system : kSystems) {
    if (!has_decay(system)) continue;
    for (const std::string& form : kForms) {
      // One at the first token of a chunk, two in a row inside of one, and one at the last token.
      BackwardCall x = make_backward_call(system, {.B = 1, .T = 11, .Hk = 1, .Hv = 1, .dk = 5, .dv = 3}, 4);
      for (const std::int64_t t : {4, 6, 7, 10}) x.forward.g[static_cast<std::size_t>(t)] = -1e38F;
      const Values got = run_backward(x, form);
      // The sums of g reach -512 in chunks, where their spacing is 3e-5.
      expect_near(got, differences_of(x), form == "chunked" ? 3e-5 : kNear, system + " " + form);
      // In chunks dg is a sum of terms that cancel there; all else is as exact as the decay, which is zero.
      const float rounding = form == "chunked" ? 1e-5F : 0.0F;
      for (const std::size_t t : {4U, 6U, 7U, 10U})
        EXPECT_LE(std::fabs(got.at("g")[t]), rounding) << system << " " << form << " " << t;
      // Other cotangents from the reset on: not a bit of the gradients before it changes.
      BackwardCall other = x;
      for (std::size_t i = 18; i < other.d_o.size(); ++i) other.d_o[i] *= -3.0F;
      for (float& e : other.d_final_state) e *= -3.0F;
      const Values changed = run_backward(other, form);
      EXPECT_EQ(changed.at("initial_state"), got.at("initial_state"));
      for (const std::string& name : x.names()) {
        if (name == "initial_state") continue;
        for (std::size_t i = 0; i < 6 * x.columns(name); ++i)
          EXPECT_LE(std::fabs(changed.at(name)[i] - got.at(name)[i]), name == "g" ? rounding : 0.0F)
              << system << " " << form << ": d." << name << " " << i;
        EXPECT_NE(changed.at(name), got.at(name));
      }
    }
  }
}

// A token without a key, a value, a query and a cotangent changes nothing; only its own dg is not zero but that of the next.
TEST(BackwardKernels, ANeutralTokenHasTheGateGradientOfItsSuccessor) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, {.B = 1, .T = 8, .Hk = 1, .Hv = 1, .dk = 5, .dv = 3}, 8);
    const std::size_t t = 3;
    const auto clear = [&](std::vector<float>& of, std::size_t columns) {
      if (!of.empty()) std::fill_n(of.begin() + static_cast<std::int64_t>(t * columns), columns, 0.0F);
    };
    clear(x.forward.q, 5), clear(x.forward.k, 5), clear(x.forward.v, 3), clear(x.d_o, 3);
    clear(x.forward.g, 1), clear(x.forward.beta, 1);
    const Values got = run_backward(x, form);
    if (has_decay(system)) {
      EXPECT_NE(got.at("g")[t], 0.0F);
      EXPECT_LE(std::fabs(got.at("g")[t] - got.at("g")[t + 1]), 1e-6F * std::fabs(got.at("g")[t]))
          << system << " " << form;
    }
    for (const std::string& name : x.names()) {
      if (name == "g" || name == "initial_state") continue;
      for (std::size_t c = 0; c < x.columns(name); ++c)
        EXPECT_EQ(got.at(name)[t * x.columns(name) + c], 0.0F) << system << " " << form << ": d." << name;
    }
  });
}

// The steps that a gradient needs: without any of them, or with one too many, it is far from the differences.
class Lossy : public cpu::ChunkedBackward {
 public:
  Lossy(const cpu::System& system, const cpu::BackwardArguments& arguments, const Contract& contract,
        std::string_view lost)
      : ChunkedBackward(system, arguments, contract), lost_(lost) {}

  static constexpr std::string_view kSteps[] = {
      "final cotangent",   "scores' part of dq",  "state's part of dk", "carried D",
      "W's part of D",     "W's part of dk",      "A's rows of dk",     "A's columns of dk",
      "U's part of dbeta", "W's part of dbeta",   "A's part of dbeta",  "query's part of dg",
      "key's part of dg",  "last token of dg",    "W's part of dg",     "A's part of dg",
      "sum of dg",         "T on the right of dT"};

 protected:
  void load_final_cotangent(const cpu::BackwardHead& head) override {
    cpu::BackwardHead without = head;
    if (lost("final cotangent")) without.d_final_state = {};
    ChunkedBackward::load_final_cotangent(without);
  }
  void query_gradient() override {
    if (lost("scores' part of dq")) std::fill(dP_.values.begin(), dP_.values.end(), 0.0F);
    ChunkedBackward::query_gradient();
  }
  void key_gradient() override {
    ChunkedBackward::key_gradient();
    if (lost("state's part of dk")) {
      for (std::int64_t i = 0; i < dK_.size(); ++i) dK_.values[i] -= dK_of_state_.values[i];
    }
  }
  void state_cotangent() override {
    if (lost("carried D")) std::fill(D_.values.begin(), D_.values.end(), 0.0F);
    if (lost("W's part of D")) std::fill(W_.values.begin(), W_.values.end(), 0.0F);
    ChunkedBackward::state_cotangent();
  }
  void key_through_W() override {
    if (!lost("W's part of dk")) ChunkedBackward::key_through_W();
  }
  void key_through_A_rows() override {
    if (!lost("A's rows of dk")) ChunkedBackward::key_through_A_rows();
  }
  void key_through_A_columns() override {
    if (!lost("A's columns of dk")) ChunkedBackward::key_through_A_columns();
  }
  float beta_through_U(std::int64_t i) const override {
    return unless("U's part of dbeta", ChunkedBackward::beta_through_U(i));
  }
  float beta_through_W(std::int64_t i) const override {
    return unless("W's part of dbeta", ChunkedBackward::beta_through_W(i));
  }
  float beta_through_A(std::int64_t i) const override {
    return unless("A's part of dbeta", ChunkedBackward::beta_through_A(i));
  }
  float gate_of_query(std::int64_t i) const override {
    return unless("query's part of dg", ChunkedBackward::gate_of_query(i));
  }
  float gate_of_key(std::int64_t i) const override {
    return unless("key's part of dg", ChunkedBackward::gate_of_key(i));
  }
  float gate_of_last_token() override {
    return unless("last token of dg", ChunkedBackward::gate_of_last_token());
  }
  float gate_through_W(std::int64_t i) const override {
    return unless("W's part of dg", ChunkedBackward::gate_through_W(i));
  }
  void gate_through_A() override {
    if (!lost("A's part of dg")) ChunkedBackward::gate_through_A();
  }
  void sum_gates() override {
    if (!lost("sum of dg")) ChunkedBackward::sum_gates();
  }
  void multiply(const cpu::Block& a, const cpu::Block& b, cpu::Block& c,
                cpu::BackwardPoint point) const override {
    ChunkedBackward::multiply(a, b, c, point);
    if (lost("T on the right of dT") && point == cpu::BackwardPoint::dT_T) cpu::product(unit_, a, T_, c);
  }

 private:
  [[nodiscard]] bool lost(std::string_view step) const { return lost_ == step; }
  [[nodiscard]] float unless(std::string_view step, float x) const { return lost(step) ? 0.0F : x; }
  std::string_view lost_;
};

TEST(BackwardKernels, ALostTermShows) {
  BackwardCall x = make_backward_call("gated_delta_rule", kDense, 4);
  const Inputs expected = differences_of(x);
  const auto distance = [&](std::string_view lost) {
    const auto make = [&](const auto&... of) { return std::make_unique<Lossy>(of..., lost); };
    EXPECT_EQ(cpu::run_chunked_backward_with(make, cpu::GATED_DELTA_RULE, x.call(), {}).kind,
              Outcome::Kind::ran);
    double worst = 0;
    for (const auto& [name, values] : expected)
      worst = std::max(worst, relative_error(x.gradients.at(name), values));
    return worst;
  };
  EXPECT_LE(distance(""), kNear);
  for (const std::string_view lost : Lossy::kSteps) EXPECT_GT(distance(lost), 1e-3) << lost;
}

TEST(BackwardKernels, AContractRoundsWhatItNames) {
  Contract tf32;
  tf32.qk = Format::tf32;
  const auto rounded_to = [](const std::vector<float>& x, float (*round)(float)) {
    return std::all_of(x.begin(), x.end(), [&](float e) { return round(e) == e; });
  };
  for_each_form([&](const std::string& system, const std::string& form) {
    for (const bool l2norm : {false, true}) {
      BackwardCall x =
          make_backward_call(system, {.B = 1, .T = 30, .Hk = 1, .Hv = 2, .dk = 12, .dv = 10}, 16);
      x.forward.l2norm = l2norm;
      const Values exact = run_backward(x, form);
      const Values bf16 = run_backward(x, form, testing::bf16());
      const std::string where = system + " " + form;
      for (const std::string name : {"q", "k", "v"}) {
        EXPECT_TRUE(rounded_to(bf16.at(name), cpu::to_bf16)) << where << ": d." << name;
        EXPECT_FALSE(rounded_to(exact.at(name), cpu::to_bf16)) << where << ": d." << name;
      }
      for (const std::string name : {"g", "beta", "initial_state"}) {
        EXPECT_TRUE(!bf16.contains(name) || !rounded_to(bf16.at(name), cpu::to_bf16))
            << where << ": d." << name;
      }
      expect_near(bf16, exact, 3e-2, where);
      if (form == "recurrent") continue;
      const Values on_unit = run_backward(x, form, tf32);
      expect_near(on_unit, exact, 4e-3, where);
      for (const std::string& name : x.names())
        EXPECT_GT(relative_error(on_unit.at(name), exact.at(name)), 1e-5) << where << name;
    }
  });
}

TEST(BackwardKernels, TheRecurrenceKeepsTheFormatOfTheState) {
  Contract contract;
  contract.state = Format::bf16;
  const Values got = run_backward(make_backward_call("retention", kDense, 4), "recurrent", contract);
  for (const float x : got.at("initial_state")) EXPECT_EQ(cpu::to_bf16(x), x);
}

// A score that overflows reaches dq and dk of its two tokens, and their dg, with the sign that it has.
TEST(BackwardKernels, AnOverflowStaysWithItsTokens) {
  BackwardCall x = make_backward_call("retention", {.B = 1, .T = 2, .Hk = 1, .Hv = 1, .dk = 1, .dv = 1}, 2);
  x.forward.q = x.forward.k = {1.0F, 1.0F};
  x.forward.v = {300.0F, 0.0F};
  x.forward.g = {0.0F, 0.0F};
  x.forward.scale = 1.0F;
  x.forward.initial_state.clear();
  x.d_o = {0.0F, 300.0F};
  x.d_final_state.clear();
  Contract fp16;
  fp16.input = fp16.output = Format::fp16;
  const Values got = run_backward(x, "chunked", fp16);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(got.at("q"), (std::vector<float>{0.0F, kInfinity}));
  EXPECT_EQ(got.at("k"), (std::vector<float>{kInfinity, 0.0F}));
  EXPECT_EQ(got.at("v"), (std::vector<float>{300.0F, 300.0F}));
  EXPECT_EQ(got.at("g")[1], kInfinity);
}

}  // namespace
}  // namespace samestate
