/// Calls of the backward kernels: packed batches, strides, threads, gradients that are not wanted, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "optimized/backward_call.h"
#include "reference/error.h"
#include "tests/optimized/backward_call.h"

namespace samestate {
namespace {

using testing::backward_kernel;
using testing::BackwardCall;
using testing::differences_of;
using testing::expect_near;
using testing::expect_same;
using testing::for_each_form;
using testing::kDense;
using testing::kForms;
using testing::kNear;
using testing::kUnwritten;
using testing::make_backward_call;
using testing::run_backward;
using testing::Shape;
using testing::Values;

const Shape kPacked{.B = 1, .T = 17, .Hk = 2, .Hv = 4, .dk = 3, .dv = 5, .offsets = {2, 2, 7, 8, 8, 14}};

TEST(BackwardCalls, TheTableHasBothFormsOfEverySystem) {
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

/// The tokens [begin, end) of a call whose batch is one sequence, with the states of sequence n.
BackwardCall sequence_of(const BackwardCall& x, std::int64_t n) {
  const Shape& s = x.forward.shape;
  const std::int64_t begin = s.offsets[static_cast<std::size_t>(n)],
                     end = s.offsets[static_cast<std::size_t>(n) + 1];
  BackwardCall out = x;
  out.forward.shape.offsets.clear();
  out.forward.shape.T = end - begin;
  const auto cut = [](std::vector<float>& of, std::int64_t first, std::int64_t count) {
    if (!of.empty()) of = std::vector<float>(of.begin() + first, of.begin() + first + count);
  };
  for (const auto& [tensor, columns] : {std::pair{&out.forward.q, s.Hk * s.dk},
                                        {&out.forward.k, s.Hk * s.dk},
                                        {&out.forward.v, s.Hv * s.dv},
                                        {&out.forward.g, s.Hv},
                                        {&out.forward.beta, s.Hv},
                                        {&out.d_o, s.Hv * s.dv}})
    cut(*tensor, begin * columns, (end - begin) * columns);
  const std::int64_t state = s.Hv * s.dk * s.dv;
  cut(out.forward.initial_state, n * state, state);
  cut(out.d_final_state, n * state, state);
  return out;
}

TEST(BackwardCalls, PackedSequencesAreCallsOfTheirOwn) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, kPacked, 4);
    const Values got = run_backward(x, form);
    Values expected;
    for (const std::string& name : x.names()) {
      if (name != "initial_state") expected[name].assign(got.at(name).size(), kUnwritten);
    }
    for (std::int64_t n = 0; n < x.forward.sequences(); ++n) {
      for (const auto& [name, values] : run_backward(sequence_of(x, n), form)) {
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

TEST(BackwardCalls, WithoutTokensTheCotangentOfTheStatePasses) {
  for_each_form([](const std::string& system, const std::string& form) {
    for (const Shape& shape :
         {Shape{.B = 2, .T = 0, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3},
          Shape{.B = 1, .T = 4, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3, .offsets = {1, 1, 1}}}) {
      BackwardCall x = make_backward_call(system, shape, 4);
      const Values got = run_backward(x, form);
      EXPECT_EQ(got.at("initial_state"), x.d_final_state) << system << " " << form;
      EXPECT_EQ(got.at("v"), std::vector<float>(got.at("v").size(), kUnwritten));
      x.d_final_state.clear();
      EXPECT_EQ(run_backward(x, form).at("initial_state"),
                std::vector<float>(x.forward.initial_state.size(), 0.0F));
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
    const bool gate =
        t.shape.back() == 1 && t.shape.size() == 4 && (t.name.ends_with("g") || t.name.ends_with("beta"));
    const std::int64_t width = gate ? 3 : t.shape[3] + 5;
    std::vector<std::int64_t> stride(4);
    stride[3] = gate ? 7 : 1;
    stride[1] = width;  // [B, H, T, D] in memory
    stride[2] = t.shape[1] * width + 2;
    stride[0] = t.shape[2] * stride[2] + 11;
    memory.emplace_back(static_cast<std::size_t>(t.shape[0] * stride[0] + 32),
                        role == TensorRole::output ? kUnwritten : NAN);
    const auto* from = static_cast<const float*>(t.data);
    float* const to = memory.back().data() + 3;
    for_each(t.shape, [&](std::int64_t dense, const std::vector<std::int64_t>& at) {
      to[offset(stride, at)] = from[dense];
    });
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
      out += memory[i].size() -
             static_cast<std::size_t>(std::count(memory[i].begin(), memory[i].end(), kUnwritten));
    return out;
  }
};

TEST(BackwardCalls, StridesChangeNoBit) {
  for_each_form([](const std::string& system, const std::string& form) {
    for (const Shape& shape : {kDense, kPacked}) {
      for (const bool broadcast : {false, true}) {
        BackwardCall x = make_backward_call(system, shape, 4);
        if (broadcast) {
          // One row for all tokens and heads, as the cotangent of a sum is.
          for (std::size_t i = 0; i < x.d_o.size(); ++i)
            x.d_o[i] = static_cast<float>(i % static_cast<std::size_t>(shape.dv)) - 1.5F;
        }
        const Values expected = run_backward(x, form);
        std::size_t count = 0;
        for (const auto& [name, values] : expected)
          count +=
              values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), kUnwritten));
        const Scattered apart(x, broadcast);
        ASSERT_EQ(backward_kernel(system, form).run(apart.call, {}).kind, Outcome::Kind::ran);
        expect_same(apart.gradients(), expected, system + " " + form);
        EXPECT_EQ(apart.written(), count) << system << " " << form;
      }
    }
  });
}

TEST(BackwardCalls, ThreadsAndRepetitionChangeNoBit) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, {.B = 3, .T = 19, .Hk = 2, .Hv = 6, .dk = 9, .dv = 12}, 8);
    x.forward.l2norm = true;
    const Values expected = run_backward(x, form);
    for (const int threads : {1, 3, 16}) {
      x.forward.threads = threads;
      expect_same(run_backward(x, form), expected, system + " " + form + " " + std::to_string(threads));
    }
  });
}

TEST(BackwardCalls, GradientsThatAreNotWantedChangeNoOther) {
  for_each_form([](const std::string& system, const std::string& form) {
    BackwardCall x = make_backward_call(system, kDense, 4);
    const Values expected = run_backward(x, form);
    for (const std::string& unwanted : x.names()) {
      KernelCall call = x.call();
      std::erase_if(call.outputs, [&](const CallTensor& t) { return t.name == "d." + unwanted; });
      ASSERT_EQ(call.outputs.size() + 1, x.names().size());
      ASSERT_EQ(backward_kernel(system, form).run(call, {}).kind, Outcome::Kind::ran);
      for (const auto& [name, values] : expected)
        EXPECT_EQ(x.gradients.at(name),
                  name == unwanted ? std::vector<float>(values.size(), kUnwritten) : values)
            << system << " " << form << ": d." << name << " without d." << unwanted;
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

TEST(BackwardCalls, ABadTensorIsNamed) {
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
    for (const std::string name : {"q", "k", "v", "g", "beta", "initial_state", "d.o", "d.final_state", "d.q",
                                   "d.k", "d.v", "d.g", "d.beta", "d.initial_state"}) {
      const std::string said = refusal([&](KernelCall& call) { ++tensor(call, name).shape[1]; });
      EXPECT_NE(said.find((name.starts_with("q") ? std::string("k") : name) + " is ["), std::string::npos)
          << name << ": " << said;
      EXPECT_NE(refusal([&](KernelCall& call) {
                  tensor(call, name).dtype = Dtype::bf16;
                }).find("tensor " + name + " is bf16"),
                std::string::npos)
          << name;
      if (!name.starts_with("d.") || name == "d.o" || name == "d.final_state") continue;
      EXPECT_NE(
          refusal([&](KernelCall& call) { tensor(call, name).stride[0] = 0; }).find(name + " has stride 0"),
          std::string::npos)
          << name;
    }
    for (const std::string name : {"d.o", "d.final_state", "d.q", "d.k", "d.v", "d.initial_state"})
      EXPECT_NE(
          refusal([&](KernelCall& call) { tensor(call, name).stride[3] = 2; }).find(name + " has stride 2"),
          std::string::npos)
          << name;
    EXPECT_NE(refusal([](KernelCall& call) { call.set("backward", 0.0); }).find("setting backward is 0"),
              std::string::npos);
    EXPECT_NE(refusal([](KernelCall& call) { call.cuts = {0, 11}; }).find("cuts"), std::string::npos);
    EXPECT_EQ(refusal([](KernelCall& call) { call.set("chunk", 0.0); }).empty(), form == "recurrent");
  }
}

TEST(BackwardCalls, WhatASystemLacksIsUnsupported) {
  for (const std::string& form : kForms) {
    BackwardCall x = make_backward_call("gated_delta_rule", kDense, 4);
    for (const std::string system : {"delta_rule", "retention"}) {
      const Outcome outcome = backward_kernel(system, form).run(x.call(), {});
      EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
      EXPECT_NE(outcome.reason.find(system == "retention" ? "d.beta" : "d.g"), std::string::npos)
          << outcome.reason;
    }
  }
  BackwardCall wide =
      make_backward_call("retention", {.B = 1, .T = 8193, .Hk = 1, .Hv = 1, .dk = 1, .dv = 1}, 8193);
  EXPECT_EQ(backward_kernel("retention", "chunked").run(wide.call(), {}).kind, Outcome::Kind::unsupported);
}

}  // namespace
}  // namespace samestate
