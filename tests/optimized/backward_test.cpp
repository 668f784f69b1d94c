/// The backward kernels of the recurrent family, recurrent and chunked, against differences of the forward pass in double and
/// against one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "optimized/backward_call.h"
#include "optimized/cpu/backward/chunked.h"
#include "optimized/cpu/rounding.h"
#include "reference/error.h"
#include "tests/optimized/backward_call.h"
#include "tests/optimized/contracts.h"

namespace samestate {
namespace {

using testing::backward_kernel;
using testing::BackwardCall;
using testing::differences_of;
using testing::has_decay;
using testing::has_delta;
using testing::Inputs;
using testing::kUnwritten;
using testing::make_backward_call;
using testing::relative_error;
using testing::Shape;
using testing::Values;

const std::vector<std::string> kSystems = {"gated_delta_rule", "delta_rule", "retention", "linear_attention"};
const std::vector<std::string> kForms = {"recurrent", "chunked"};

/// fp32 of these sizes is within this distance of double, in the 2-norm; a lost term is at 1e-3 or more.
constexpr double kNear = 5e-6;

const Shape kDense{.B = 2, .T = 11, .Hk = 2, .Hv = 4, .dk = 5, .dv = 3};
const Shape kPacked{.B = 1, .T = 17, .Hk = 2, .Hv = 4, .dk = 3, .dv = 5, .offsets = {2, 2, 7, 8, 8, 14}};

Values run(BackwardCall x, std::string_view form, const Contract& contract = {}) {
  const Outcome outcome = backward_kernel(x.system, form).run(x.call(), contract);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  return std::move(x.gradients);
}

template <class Expected>
void expect_near(const Values& got, const Expected& expected, double limit, const std::string& where) {
  for (const auto& [name, values] : expected) EXPECT_LE(relative_error(got.at(name), values), limit) << where << ": d." << name;
}

/// Bit for bit, so that zeros of other signs differ too.
void expect_same(const Values& got, const Values& expected, const std::string& where) {
  for (const auto& [name, values] : expected) EXPECT_EQ(got.at(name), values) << where << ": d." << name;
}

/// Every system in both forms; in chunks of which 11 and 17 tokens leave a tail.
void for_each_form(const std::function<void(const std::string& system, const std::string& form)>& body) {
  for (const std::string& system : kSystems) {
    for (const std::string& form : kForms) body(system, form);
  }
}

TEST(BackwardKernels, TheTableHasBothFormsOfEverySystem) {
  EXPECT_EQ(cpu::backward_kernels().size(), 8U);
  for_each_form([](const std::string& system, const std::string& form) {
    const CallKernel& row = backward_kernel(system, form);
    EXPECT_EQ(row.system, system + ".backward");
    EXPECT_EQ(row.form, form);
    EXPECT_EQ(row.device, "cpu");
    EXPECT_EQ(row.limits.size(), form == "chunked" ? 1U : 0U);
    EXPECT_TRUE(row.strided && row.packed);
  });
}

TEST(BackwardKernels, GradientsAreDifferencesOfTheForwardPass) {
  for_each_form([](const std::string& system, const std::string& form) {
    for (const bool l2norm : {false, true}) {
      for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
        BackwardCall x = make_backward_call(system, kDense, 4);
        x.forward.l2norm = l2norm;
        x.forward.head_map = map;
        x.forward.scale = 0.7F;
        expect_near(run(x, form), differences_of(x), kNear, system + " " + form);
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
      const Values expected = run(x, "recurrent");
      for (const std::int64_t chunk : {1, 2, 7, 16, 33, 64, 1000}) {
        x.forward.chunk = chunk;
        expect_near(run(x, "chunked"), expected, 1e-5, system + " chunk " + std::to_string(chunk));
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
      const Values got = run(without, form);
      expect_same(got, run(with, form), where);
      if (absent < 6) expect_near(got, differences_of(without), kNear, where);
    }
  });
}

/// The tokens [begin, end) of a call whose batch is one sequence, with the states of sequence n.
BackwardCall sequence_of(const BackwardCall& x, std::int64_t n) {
  const Shape& s = x.forward.shape;
  const std::int64_t begin = s.offsets[static_cast<std::size_t>(n)], end = s.offsets[static_cast<std::size_t>(n) + 1];
  BackwardCall out = x;
  out.forward.shape.offsets.clear();
  out.forward.shape.T = end - begin;
  const auto cut = [](std::vector<float>& of, std::int64_t first, std::int64_t count) {
    if (!of.empty()) of = std::vector<float>(of.begin() + first, of.begin() + first + count);
  };
  for (const auto& [tensor, columns] : {std::pair{&out.forward.q, s.Hk * s.dk}, {&out.forward.k, s.Hk * s.dk},
                                        {&out.forward.v, s.Hv * s.dv}, {&out.forward.g, s.Hv},
                                        {&out.forward.beta, s.Hv}, {&out.d_o, s.Hv * s.dv}})
    cut(*tensor, begin * columns, (end - begin) * columns);
  const std::int64_t state = s.Hv * s.dk * s.dv;
  cut(out.forward.initial_state, n * state, state);
  cut(out.d_final_state, n * state, state);
  return out;
}

TEST(BackwardKernels, PackedSequencesAreCallsOfTheirOwn) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, kPacked, 4);
    const Values got = run(x, form);
    Values expected;
    for (const std::string& name : x.names()) {
      if (name != "initial_state") expected[name].assign(got.at(name).size(), kUnwritten);
    }
    for (std::int64_t n = 0; n < x.forward.sequences(); ++n) {
      for (const auto& [name, values] : run(sequence_of(x, n), form)) {
        if (name == "initial_state") {
          expected[name].insert(expected[name].end(), values.begin(), values.end());
        } else {
          std::copy(values.begin(), values.end(),
                    expected[name].begin() + kPacked.offsets[static_cast<std::size_t>(n)] *
                                                 static_cast<std::int64_t>(x.columns(name)));
        }
      }
    }
    // Rows of no sequence are NaN in every input, and stay as they were in every gradient.
    expect_same(got, expected, system + " " + form);
    expect_near(got, differences_of(x), kNear, system + " " + form);
  });
}

TEST(BackwardKernels, AResetPassesNothingBack) {
  for (const std::string& system : kSystems) {
    if (!has_decay(system)) continue;
    for (const std::string& form : kForms) {
      // One at the first token of a chunk, two in a row inside of one, and one at the last token.
      BackwardCall x = make_backward_call(system, {.B = 1, .T = 11, .Hk = 1, .Hv = 1, .dk = 5, .dv = 3}, 4);
      for (const std::int64_t t : {4, 6, 7, 10}) x.forward.g[static_cast<std::size_t>(t)] = -1e38F;
      const Values got = run(x, form);
      expect_near(got, differences_of(x), kNear, system + " " + form);
      for (const std::size_t t : {4U, 6U, 7U, 10U}) EXPECT_EQ(got.at("g")[t], 0.0F) << system << " " << form << " " << t;
      // Other cotangents from the reset on: not a bit of the gradients before it changes.
      BackwardCall other = x;
      for (std::size_t i = 18; i < other.d_o.size(); ++i) other.d_o[i] *= -3.0F;
      for (float& e : other.d_final_state) e *= -3.0F;
      const Values changed = run(other, form);
      EXPECT_EQ(changed.at("initial_state"), got.at("initial_state"));
      for (const std::string& name : x.names()) {
        if (name == "initial_state") continue;
        const auto end = [&](const Values& of) { return of.at(name).begin() + static_cast<std::int64_t>(6 * x.columns(name)); };
        EXPECT_EQ(std::vector<float>(changed.at(name).begin(), end(changed)),
                  std::vector<float>(got.at(name).begin(), end(got)))
            << system << " " << form << ": d." << name;
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
    const Values got = run(x, form);
    if (has_decay(system)) {
      EXPECT_NE(got.at("g")[t], 0.0F);
      EXPECT_LE(std::fabs(got.at("g")[t] - got.at("g")[t + 1]), 1e-6F * std::fabs(got.at("g")[t])) << system << " " << form;
    }
    for (const std::string& name : x.names()) {
      if (name == "g" || name == "initial_state") continue;
      for (std::size_t c = 0; c < x.columns(name); ++c)
        EXPECT_EQ(got.at(name)[t * x.columns(name) + c], 0.0F) << system << " " << form << ": d." << name;
    }
  });
}

TEST(BackwardKernels, WithoutTokensTheCotangentOfTheStatePasses) {
  for_each_form([](const std::string& system, const std::string& form) {
    for (const Shape& shape : {Shape{.B = 2, .T = 0, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3},
                               Shape{.B = 1, .T = 4, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3, .offsets = {1, 1, 1}}}) {
      BackwardCall x = make_backward_call(system, shape, 4);
      const Values got = run(x, form);
      EXPECT_EQ(got.at("initial_state"), x.d_final_state) << system << " " << form;
      EXPECT_EQ(got.at("v"), std::vector<float>(got.at("v").size(), kUnwritten));
      x.d_final_state.clear();
      EXPECT_EQ(run(x, form).at("initial_state"), std::vector<float>(x.forward.initial_state.size(), 0.0F));
    }
  });
}

/// The tensors of a call laid out anew: dimensions in another order in memory and rows apart, with `fill` in between. Gradients
/// lie in memory of their own, too.
struct Scattered {
  KernelCall call;
  std::vector<std::vector<float>> memory;

  Scattered(BackwardCall& x, bool broadcast) : call(x.call()) {
    for (CallTensor& t : call.inputs) move(t, t.role);
    for (CallTensor& t : call.outputs) move(t, t.role);
    for (CallTensor& t : call.inputs) {
      if (broadcast && t.name == "d.o") t.stride = {0, 0, 0, 1};
    }
  }

  void move(CallTensor& t, TensorRole role) {
    const bool gate = t.shape.back() == 1 && t.shape.size() == 4 && (t.name.ends_with("g") || t.name.ends_with("beta"));
    const std::int64_t width = gate ? 3 : t.shape[3] + 5;
    std::vector<std::int64_t> stride(4);
    stride[3] = gate ? 7 : 1;
    stride[1] = width;                                   // [B, H, T, D] in memory
    stride[2] = t.shape[1] * width + 2;
    stride[0] = t.shape[2] * stride[2] + 11;
    memory.emplace_back(static_cast<std::size_t>(t.shape[0] * stride[0] + 32), role == TensorRole::output ? kUnwritten : NAN);
    const auto* from = static_cast<const float*>(t.data);
    float* const to = memory.back().data() + 3;
    for_each(t.shape, [&](std::int64_t dense, const std::vector<std::int64_t>& at) { to[offset(stride, at)] = from[dense]; });
    t.stride = stride;
    t.data = to;
  }

  static std::int64_t offset(const std::vector<std::int64_t>& stride, const std::vector<std::int64_t>& at) {
    std::int64_t out = 0;
    for (std::size_t d = 0; d < 4; ++d) out += stride[d] * at[d];
    return out;
  }

  template <class Body>
  static void for_each(const std::vector<std::int64_t>& shape, const Body& body) {
    std::int64_t dense = 0;
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b)
        for (std::int64_t c = 0; c < shape[2]; ++c)
          for (std::int64_t d = 0; d < shape[3]; ++d) body(dense++, std::vector<std::int64_t>{a, b, c, d});
  }

  /// The gradients in dense order, by the names of their inputs.
  [[nodiscard]] Values gradients() const {
    Values out;
    for (const CallTensor& t : call.outputs) {
      std::vector<float>& values = out[std::string(t.name.substr(2))];
      for_each(t.shape, [&](std::int64_t, const std::vector<std::int64_t>& at) {
        values.push_back(static_cast<const float*>(t.data)[offset(t.stride, at)]);
      });
    }
    return out;
  }

  /// Elements of outputs' memory that were written.
  [[nodiscard]] std::size_t written() const {
    std::size_t out = 0;
    for (std::size_t i = call.inputs.size(); i < memory.size(); ++i)
      out += memory[i].size() - static_cast<std::size_t>(std::count(memory[i].begin(), memory[i].end(), kUnwritten));
    return out;
  }
};

TEST(BackwardKernels, StridesChangeNoBit) {
  for_each_form([](const std::string& system, const std::string& form) {
    for (const Shape& shape : {kDense, kPacked}) {
      for (const bool broadcast : {false, true}) {
        BackwardCall x = make_backward_call(system, shape, 4);
        if (broadcast) {
          // One row for all tokens and heads, as the cotangent of a sum is.
          for (std::size_t i = 0; i < x.d_o.size(); ++i) x.d_o[i] = static_cast<float>(i % static_cast<std::size_t>(shape.dv)) - 1.5F;
        }
        const Values expected = run(x, form);
        std::size_t count = 0;
        for (const auto& [name, values] : expected)
          count += values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), kUnwritten));
        const Scattered apart(x, broadcast);
        ASSERT_EQ(backward_kernel(system, form).run(apart.call, {}).kind, Outcome::Kind::ran);
        expect_same(apart.gradients(), expected, system + " " + form);
        EXPECT_EQ(apart.written(), count) << system << " " << form;
      }
    }
  });
}

TEST(BackwardKernels, ThreadsAndRepetitionChangeNoBit) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, {.B = 3, .T = 19, .Hk = 2, .Hv = 6, .dk = 9, .dv = 12}, 8);
    x.forward.l2norm = true;
    const Values expected = run(x, form);
    for (const int threads : {1, 3, 16}) {
      x.forward.threads = threads;
      expect_same(run(x, form), expected, system + " " + form + " " + std::to_string(threads));
    }
  });
}

TEST(BackwardKernels, GradientsThatAreNotWantedChangeNoOther) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, kDense, 4);
    const Values expected = run(x, form);
    for (const std::string& unwanted : x.names()) {
      KernelCall call = x.call();
      std::erase_if(call.outputs, [&](const CallTensor& t) { return t.name == "d." + unwanted; });
      ASSERT_EQ(call.outputs.size() + 1, x.names().size());
      ASSERT_EQ(backward_kernel(system, form).run(call, {}).kind, Outcome::Kind::ran);
      for (const auto& [name, values] : expected)
        EXPECT_EQ(x.gradients.at(name), name == unwanted ? std::vector<float>(values.size(), kUnwritten) : values)
            << system << " " << form << ": d." << name << " without d." << unwanted;
    }
  });
}

// The steps that a gradient needs: without any of them, or with one too many, it is far from the differences.
class Lossy : public cpu::ChunkedBackward {
 public:
  Lossy(const cpu::System& system, const cpu::BackwardArguments& arguments, const Contract& contract, std::string_view lost)
      : ChunkedBackward(system, arguments, contract), lost_(lost) {}

  static constexpr std::string_view kSteps[] = {"final cotangent", "scores' part of dq", "state's part of dk",
                                                "carried D",       "W's part of D",      "W's part of dk",
                                                "A's rows of dk",  "A's columns of dk",  "U's part of dbeta",
                                                "W's part of dbeta", "A's part of dbeta", "query's part of dg",
                                                "key's part of dg", "last token of dg",  "W's part of dg",
                                                "A's part of dg",  "sum of dg",          "T on the right of dT"};

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
  float beta_through_U(std::int64_t i) const override { return unless("U's part of dbeta", ChunkedBackward::beta_through_U(i)); }
  float beta_through_W(std::int64_t i) const override { return unless("W's part of dbeta", ChunkedBackward::beta_through_W(i)); }
  float beta_through_A(std::int64_t i) const override { return unless("A's part of dbeta", ChunkedBackward::beta_through_A(i)); }
  float gate_of_query(std::int64_t i) const override { return unless("query's part of dg", ChunkedBackward::gate_of_query(i)); }
  float gate_of_key(std::int64_t i) const override { return unless("key's part of dg", ChunkedBackward::gate_of_key(i)); }
  float gate_of_last_token() override { return unless("last token of dg", ChunkedBackward::gate_of_last_token()); }
  float gate_through_W(std::int64_t i) const override { return unless("W's part of dg", ChunkedBackward::gate_through_W(i)); }
  void gate_through_A() override {
    if (!lost("A's part of dg")) ChunkedBackward::gate_through_A();
  }
  void sum_gates() override {
    if (!lost("sum of dg")) ChunkedBackward::sum_gates();
  }
  void multiply(const cpu::Block& a, const cpu::Block& b, cpu::Block& c, cpu::BackwardPoint point) const override {
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
    EXPECT_EQ(cpu::run_chunked_backward_with(make, cpu::GATED_DELTA_RULE, x.call(), {}).kind, Outcome::Kind::ran);
    double worst = 0;
    for (const auto& [name, values] : expected) worst = std::max(worst, relative_error(x.gradients.at(name), values));
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
      BackwardCall x = make_backward_call(system, {.B = 1, .T = 30, .Hk = 1, .Hv = 2, .dk = 12, .dv = 10}, 16);
      x.forward.l2norm = l2norm;
      const Values exact = run(x, form);
      const Values bf16 = run(x, form, testing::bf16());
      const std::string where = system + " " + form;
      for (const std::string name : {"q", "k", "v"}) {
        EXPECT_TRUE(rounded_to(bf16.at(name), cpu::to_bf16)) << where << ": d." << name;
        EXPECT_FALSE(rounded_to(exact.at(name), cpu::to_bf16)) << where << ": d." << name;
      }
      if (has_decay(system)) EXPECT_FALSE(rounded_to(bf16.at("g"), cpu::to_bf16)) << where;
      if (has_delta(system)) EXPECT_FALSE(rounded_to(bf16.at("beta"), cpu::to_bf16)) << where;
      EXPECT_FALSE(rounded_to(bf16.at("initial_state"), cpu::to_bf16)) << where;
      expect_near(bf16, exact, 3e-2, where);
      if (form == "recurrent") continue;
      const Values on_unit = run(x, form, tf32);
      expect_near(on_unit, exact, 4e-3, where);
      for (const std::string& name : x.names()) EXPECT_GT(relative_error(on_unit.at(name), exact.at(name)), 1e-5) << where << name;
    }
  });
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BackwardKernels, ABadTensorIsNamed) {
  for (const std::string& form : kForms) {
    const CallKernel& kernel = backward_kernel("gated_delta_rule", form);
    const auto refusal = [&](const std::function<void(KernelCall&)>& change) {
      BackwardCall x = make_backward_call("gated_delta_rule", kDense, 4);
      KernelCall call = x.call();
      change(call);
      return error_of([&] { (void)kernel.run(call, {}); });
    };
    const auto tensor = [](KernelCall& call, std::string_view name) -> CallTensor& {
      for (auto* list : {&call.inputs, &call.outputs}) {
        for (CallTensor& t : *list) {
          if (t.name == name) return t;
        }
      }
      throw std::out_of_range(std::string(name));
    };
    EXPECT_EQ(refusal([](KernelCall&) {}), "");
    for (const std::string name : {"q", "k", "v", "g", "beta", "initial_state", "d.o", "d.final_state", "d.q", "d.k", "d.v",
                                   "d.g", "d.beta", "d.initial_state"}) {
      const std::string said = refusal([&](KernelCall& call) { ++tensor(call, name).shape[1]; });
      EXPECT_NE(said.find((name.starts_with("q") ? std::string("k") : name) + " is ["), std::string::npos) << name << ": " << said;
      EXPECT_NE(refusal([&](KernelCall& call) { tensor(call, name).dtype = Dtype::bf16; }).find("tensor " + name + " is bf16"),
                std::string::npos)
          << name;
      if (!name.starts_with("d.") || name == "d.o" || name == "d.final_state") continue;
      EXPECT_NE(refusal([&](KernelCall& call) { tensor(call, name).stride[0] = 0; }).find(name + " has stride 0"),
                std::string::npos)
          << name;
    }
    for (const std::string name : {"d.o", "d.final_state", "d.q", "d.k", "d.v", "d.initial_state"})
      EXPECT_NE(refusal([&](KernelCall& call) { tensor(call, name).stride[3] = 2; }).find(name + " has stride 2"),
                std::string::npos)
          << name;
    EXPECT_NE(refusal([](KernelCall& call) { call.set("backward", 0.0); }).find("setting backward is 0"), std::string::npos);
    EXPECT_NE(refusal([](KernelCall& call) { call.cuts = {0, 11}; }).find("cuts"), std::string::npos);
    EXPECT_EQ(refusal([](KernelCall& call) { call.set("chunk", 0.0); }).empty(), form == "recurrent");
  }
}

TEST(BackwardKernels, WhatASystemLacksIsUnsupported) {
  for (const std::string& form : kForms) {
    BackwardCall x = make_backward_call("gated_delta_rule", kDense, 4);
    for (const std::string system : {"delta_rule", "retention"}) {
      const Outcome outcome = backward_kernel(system, form).run(x.call(), {});
      EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
      EXPECT_NE(outcome.reason.find(system == "retention" ? "d.beta" : "d.g"), std::string::npos) << outcome.reason;
    }
  }
  BackwardCall wide = make_backward_call("retention", {.B = 1, .T = 8193, .Hk = 1, .Hv = 1, .dk = 1, .dv = 1}, 8193);
  EXPECT_EQ(backward_kernel("retention", "chunked").run(wide.call(), {}).kind, Outcome::Kind::unsupported);
}

}  // namespace
}  // namespace samestate
