#include "harness/subjects/edge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/run/call_loop.h"
#include "harness/run/run_case.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

using Json = nlohmann::json;

/// A call of the gated delta rule on dense tensors whose elements are their row-major numbers.
struct EdgeCallSetup {
  explicit EdgeCallSetup(std::int64_t B = 2, std::int64_t T = 3, std::int64_t Hk = 2, std::int64_t Hv = 4,
                         std::int64_t dk = 2, std::int64_t dv = 3) {
    const auto numbers = [](std::int64_t size) {
      std::vector<float> x(static_cast<std::size_t>(size));
      std::iota(x.begin(), x.end(), 0.0F);
      return x;
    };
    q = numbers(B * T * Hk * dk), k = q, v = numbers(B * T * Hv * dv), o = v,
    state = numbers(B * Hv * dk * dv);
    g.assign(static_cast<std::size_t>(B * T * Hv), -0.5F), beta.assign(g.size(), 0.5F), final_state = state;
    a.q = row_major<const float, 4>(q.data(), {B, T, Hk, dk});
    a.k = row_major<const float, 4>(k.data(), {B, T, Hk, dk});
    a.v = row_major<const float, 4>(v.data(), {B, T, Hv, dv});
    a.g = row_major<const float, 3>(g.data(), {B, T, Hv});
    a.beta = row_major<const float, 3>(beta.data(), {B, T, Hv});
    a.o = row_major<float, 4>(o.data(), {B, T, Hv, dv});
    a.initial_state = row_major<const float, 4>(state.data(), {B, Hv, dk, dv});
    a.final_state = row_major<float, 4>(final_state.data(), {B, Hv, dk, dv});
    a.scale = 0.25F;
  }
  std::vector<float> q, k, v, g, beta, o, state, final_state;
  Arguments a;
};

/// The call in a memory object of its own.
struct Laid {
  Laid(const Arguments& a, const Conventions& conventions, const char* contract = "fp32",
       bool strided = false, const char* form = "chunked")
      : edge(a, contract_named(contract), declaration(conventions, strided, form)),
        memory(edge.packed_bytes()),
        places(edge.packed(memory)) {
    edge.write(places);
    message = Json::parse(edge.message(1, "k", memory.size(), places));
  }
  static Declaration declaration(const Conventions& conventions, bool strided, const char* form) {
    Declaration d;
    d.form = form;
    d.system = "gated_delta_rule";
    d.conventions = conventions;
    d.strided = strided;
    return d;
  }
  [[nodiscard]] Json tensor(const char* name) const {
    for (const char* side : {"inputs", "outputs"}) {
      for (const Json& x : message[side]) {
        if (x["name"] == name) return x;
      }
    }
    return nullptr;
  }
  template <class T = float>
  T& at(const char* name, std::size_t i) {
    return *reinterpret_cast<T*>(memory.data() + tensor(name)["offset"].get<std::size_t>() + i * sizeof(T));
  }
  EdgeCall edge;
  std::vector<std::byte> memory;
  std::vector<EdgePlace> places;
  Json message;
};

TEST(Edge, CutsBetweenRanksAreWordsOfTheCall) {
  EdgeCallSetup c(1, 9);
  EXPECT_FALSE(Laid(c.a, {}).message.contains("cuts"));
  const std::vector<std::int64_t> cuts = {0, 2, 2, 7, 9};
  c.a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {5});
  EXPECT_EQ(Laid(c.a, {}).message["cuts"], Json({0, 2, 2, 7, 9}));
  // Who does not take strides does not see the tokens of no sequence, and the cuts count from what it sees.
  const std::vector<std::int64_t> lengths = {3, 5, 8};
  c.a.cu_seqlens = row_major<const std::int64_t, 1>(lengths.data(), {3});
  c.a.initial_state = {}, c.a.final_state = {};
  EXPECT_EQ(Laid(c.a, {}).message["cuts"], Json({0, 0, 0, 4, 5}));
  EXPECT_EQ(Laid(c.a, {}, "fp32", true).message["cuts"], Json({0, 2, 2, 7, 9}));
  // Offsets of heads say nothing about tokens.
  const std::vector<std::int64_t> heads = {0, 1, 4, 4};
  c.a.cuts = row_major<const std::int64_t, 1>(heads.data(), {4});
  EXPECT_EQ(Laid(c.a, {}, "fp32", false, "head_parallel").message["cuts"], Json({0, 1, 4, 4}));
}

// docs/lookup/subjects.md has a row for every field of a run.
TEST(Edge, TheDocumentNamesEveryFieldOfARun) {
  std::ifstream file(std::string(SAMESTATE_SOURCE_DIR) + "/docs/lookup/subjects.md");
  std::string row;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `run` |")) row = line;
  }
  EdgeCallSetup c(1, 9);
  const std::vector<std::int64_t> cuts = {0, 2, 2, 7, 9};
  c.a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {5});
  const Json message = Laid(c.a, {}).message;
  EXPECT_TRUE(message.contains("cuts"));
  for (const auto& [name, value] : message.items())
    EXPECT_TRUE(name == "type" || row.find("`" + name + "`") != row.npos) << name << " in " << row;
}

TEST(Edge, TheCanonicalCallIsAsItStands) {
  EdgeCallSetup c;
  Laid laid(c.a, {});
  EXPECT_EQ(laid.tensor("q")["shape"], Json({2, 3, 2, 2}));
  EXPECT_EQ(laid.tensor("q")["strides"], Json({12, 4, 2, 1}));
  EXPECT_EQ(laid.at("v", 17), 17.0F);
  EXPECT_EQ(laid.message["scale"], 0.25);
  EXPECT_EQ(laid.tensor("cu_seqlens"), nullptr);
  laid.at("o", 5) = 99.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(c.o[5], 99.0F);
  EXPECT_EQ(c.o[6], 6.0F) << "what was not written stays the judge's";
}

TEST(Edge, StatesAreTransposedBothWays) {
  EdgeCallSetup c;
  Laid laid(c.a, {.values_first = true});
  EXPECT_EQ(laid.tensor("initial_state")["shape"], Json({2, 4, 3, 2}));
  EXPECT_EQ(laid.at("initial_state", 1), 3.0F);  // [.., dv = 0, dk = 1]
  laid.at("final_state", 1) = 70.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(c.final_state[3], 70.0F);
}

// A subject that takes strides gets those of the case, but a dense state of a dense call in whichever order it declares.
TEST(Edge, ADenseStateIsDenseInTheOrderThatIsDeclared) {
  EdgeCallSetup c;
  Laid dense(c.a, {.values_first = true}, "fp32", true);
  for (const char* name : {"initial_state", "final_state"})
    EXPECT_EQ(dense.tensor(name)["strides"], Json({24, 6, 2, 1})) << name;
  EXPECT_EQ(dense.at("initial_state", 1), 3.0F);
  dense.at("final_state", 1) = 70.0F;
  dense.edge.read(dense.places);
  EXPECT_EQ(c.final_state[3], 70.0F);
  std::vector<float> gaps(2 * 4 * 2 * 5, 7.0F);
  c.a.initial_state = {gaps.data(), {2, 4, 2, 3}, {40, 10, 5, 1}};
  const Laid padded(c.a, {.values_first = true}, "fp32", true);
  EXPECT_EQ(padded.tensor("initial_state")["strides"], Json({40, 10, 1, 5}));
}

TEST(Edge, HeadsAreReorderedForAFixedMap) {
  EdgeCallSetup c;
  Laid laid(c.a, {.heads = Conventions::Heads::tiled});
  EXPECT_EQ(laid.message["heads"], "tiled");
  // Tiled head 1 is key head 1's first: interleaved head 2.
  EXPECT_EQ(laid.at("v", 3), 6.0F);
  laid.at("o", 3) = -1.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(c.o[6], -1.0F);
  Laid repeated(c.a, {.heads = Conventions::Heads::repeated});
  EXPECT_EQ(repeated.tensor("k")["shape"], Json({2, 3, 4, 2}));
  EXPECT_EQ(repeated.at("k", 2), 0.0F);
  EXPECT_EQ(repeated.at("k", 4), 2.0F);
  EXPECT_EQ(repeated.message["parameters"]["Hk"], 4);
}

TEST(Edge, TokensInOtherLayouts) {
  EdgeCallSetup c;
  Laid heads(c.a, {.layout = Conventions::Tokens::BHTD});
  EXPECT_EQ(heads.tensor("v")["shape"], Json({2, 4, 3, 3}));
  EXPECT_EQ(heads.at("v", 3), 12.0F);  // head 0, token 1
  Laid flat(c.a, {.layout = Conventions::Tokens::THD, .offsets = Dtype::int32});
  EXPECT_EQ(flat.tensor("v")["shape"], Json({6, 4, 3}));
  EXPECT_EQ(flat.tensor("cu_seqlens")["dtype"], "int32");
  EXPECT_EQ(flat.at<std::int32_t>("cu_seqlens", 2), 6);
}

TEST(Edge, TokensOfNoSequenceAreLeftOutForThoseWhoTakeNoStrides) {
  EdgeCallSetup c(1, 6);
  const std::vector<std::int64_t> offsets{2, 3, 5};
  c.a.cu_seqlens = row_major<const std::int64_t, 1>(offsets.data(), {3});
  Laid dense(c.a, {});
  EXPECT_EQ(dense.tensor("q")["shape"], Json({1, 3, 2, 2}));
  EXPECT_EQ(dense.at("q", 0), 8.0F);
  EXPECT_EQ(dense.at<std::int64_t>("cu_seqlens", 0), 0);
  Laid whole(c.a, {}, "fp32", true);
  EXPECT_EQ(whole.tensor("q")["shape"], Json({1, 6, 2, 2}));
  EXPECT_EQ(whole.at<std::int64_t>("cu_seqlens", 0), 2);
}

TEST(Edge, AStateInPlaceHasOneMemory) {
  EdgeCallSetup c;
  Laid laid(c.a, {.state = Conventions::State::in_place});
  EXPECT_EQ(laid.tensor("initial_state")["offset"], laid.tensor("final_state")["offset"]);
  laid.at("final_state", 4) = 50.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(c.final_state[4], 50.0F);
  EXPECT_EQ(c.state[4], 4.0F) << "the judge's input is not the subject's to write";
  c.a.initial_state = {};
  Laid zeros(c.a, {.state = Conventions::State::required});
  EXPECT_EQ(zeros.at("initial_state", 4), 0.0F);
}

TEST(Edge, WhatElseIsWrittenIsSeen) {
  EdgeCallSetup c;
  Laid input(c.a, {});
  input.at("k", 2) = 1.0F;
  input.at("k", 2) += 40.0F;
  EXPECT_THROW(
      {
        try {
          input.edge.read(input.places);
        } catch (const Trespass& error) {
          EXPECT_STREQ(error.what(), "the kernel changed its input k: element 2 of its buffer");
          throw;
        }
      },
      Trespass);
  Laid beside(c.a, {});
  beside.memory[beside.tensor("o")["offset"].get<std::size_t>() - 1] = std::byte{0};
  EXPECT_THROW(beside.edge.read(beside.places), Trespass);
}

TEST(Edge, SixteenBitsAreTheContractsAndNothingIsRoundedInPassing) {
  EdgeCallSetup c;
  Laid laid(c.a, {}, "bf16");
  EXPECT_EQ(laid.tensor("q")["dtype"], "bf16");
  EXPECT_EQ(laid.tensor("g")["dtype"], "fp32");
  laid.at<std::uint16_t>("o", 0) = 0x3f80;
  c.o[1] = 77.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(c.o[0], 1.0F);
  EXPECT_EQ(c.o[1], 77.0F) << "stale elements are not written";
  c.q[0] = 1.0F + 0x1p-12F;
  EXPECT_THROW(Laid(c.a, {}, "bf16"), Unavailable);
}

TEST(Edge, RefusesWhatTheConventionsDoNotAllow) {
  EdgeCallSetup c;
  EXPECT_EQ(refusal_of(c.a, {}), "");
  EXPECT_NE(refusal_of(c.a, {.l2norm = Conventions::Norm::in_kernel}), "");
  EXPECT_NE(refusal_of(c.a, {.scale = Conventions::Scale::dk}), "");
  c.a.scale = static_cast<float>(1.0 / std::sqrt(2.0));
  EXPECT_EQ(refusal_of(c.a, {.scale = Conventions::Scale::dk}), "");
  c.beta[3] = 1.5F;
  EXPECT_NE(refusal_of(c.a, {.beta = Given::Strength::logit}), "");
  EXPECT_EQ(refusal_of(c.a, {.beta = Given::Strength::twice_logit}), "");
  c.a.l2norm = true;
  EXPECT_NE(refusal_of(c.a, {.scale = Conventions::Scale::folded}), "");
}

CallTensor dense(std::string_view name, std::vector<std::int64_t> shape, std::vector<float>& data,
                 Axis axis = Axis::tokens) {
  CallTensor x{.name = name, .shape = std::move(shape), .data = data.data(), .axis = axis};
  x.stride.resize(x.shape.size());
  std::int64_t step = 1;
  for (std::size_t d = x.shape.size(); d-- > 0; step *= x.shape[d]) x.stride[d] = step;
  return x;
}

/// Three requests on pools of two slots: in slot 1, in none, in slot 0.
struct Step {
  std::vector<float> slot{1.0F, -1.0F, 0.0F}, pool{10, 11, 20, 21, 30, 31}, o{7, 7, 7},
      after = std::vector<float>(6, 7.0F);
  KernelCall call{.inputs = {dense("slot", {3, 1}, slot), dense("pool", {3, 2, 1, 1, 1}, pool)},
                  .outputs = {dense("o", {3, 1}, o), dense("pool", {3, 2, 1, 1, 1}, after)},
                  .parameters = {{"P", 2}, {"dk", 1}},
                  .batch = 3,
                  .tokens = 1};

  Declaration declared(Conventions::NullSlot null_slot) {
    Declaration d;
    d.system = "gated_delta_step", d.form = "recurrent";
    d.conventions.null_slot = null_slot;
    return d;
  }
};

/// The data of a call that the subject sees and leaves.
struct LaidStep {
  LaidStep(Step& step, Conventions::NullSlot null_slot)
      : edge(step.call, contract_named("fp32"), step.declared(null_slot)),
        memory(edge.packed_bytes()),
        places(edge.packed(memory)) {
    edge.write(places);
    message = Json::parse(edge.message(1, "k", memory.size(), places));
  }
  [[nodiscard]] const Json& tensor(const char* side, const char* name) const {
    for (const Json& x : message[side]) {
      if (x["name"] == name) return x;
    }
    return message;
  }
  float* at(const char* side, const char* name) {
    return reinterpret_cast<float*>(memory.data() + tensor(side, name)["offset"].get<std::size_t>());
  }
  std::vector<float> seen(const char* side, const char* name, std::size_t count) {
    return {at(side, name), at(side, name) + count};
  }
  EdgeCall edge;
  std::vector<std::byte> memory;
  std::vector<EdgePlace> places;
  Json message;
};

TEST(Edge, ABackwardPassHasTheFormatsAndSettingsOfTheForwardCall) {
  std::vector<float> q{1, 2}, d_o{3}, d_state{4, 5}, d_q(2), d_g(1);
  KernelCall call{.inputs = {dense("q", {1, 1, 1, 2}, q), dense("d.o", {1, 1, 1, 1}, d_o),
                             dense("d.final_state", {1, 1, 2, 1}, d_state, Axis::state)},
                  .outputs = {dense("d.q", {1, 1, 1, 2}, d_q), dense("d.g", {1, 1, 1, 1}, d_g)},
                  .parameters = {{"Hk", 1}, {"Hv", 1}, {"dk", 2}, {"dv", 1}},
                  .batch = 1,
                  .tokens = 1};
  call.set("backward", 1.0);
  call.set("scale", 0.5);
  call.set("tiled", 1.0);
  Declaration d;
  d.system = "gated_delta_rule.backward", d.form = "recurrent";
  EdgeCall edge(call, contract_named("bf16"), d);
  std::vector<std::byte> memory(edge.packed_bytes());
  const Json message = Json::parse(edge.message(1, "k", memory.size(), edge.packed(memory)));
  EXPECT_EQ(message["scale"], 0.5);
  EXPECT_EQ(message["heads"], "tiled");
  EXPECT_EQ(message["l2norm"], false);
  const auto dtype = [&](const char* side, std::size_t i) {
    return message[side][i]["dtype"].get<std::string>();
  };
  EXPECT_EQ(dtype("inputs", 0), "bf16");
  EXPECT_EQ(dtype("inputs", 1), "bf16");
  EXPECT_EQ(dtype("inputs", 2), "fp32") << "states keep fp32";
  EXPECT_EQ(dtype("outputs", 0), "bf16");
  EXPECT_EQ(dtype("outputs", 1), "fp32") << "gates keep fp32";
}

TEST(Edge, ASlotThatIsNobodysStandsInFront) {
  Step step;
  LaidStep laid(step, Conventions::NullSlot::zero);
  EXPECT_EQ(laid.message["parameters"]["P"], 3);
  EXPECT_EQ(laid.tensor("inputs", "pool")["shape"], Json({3, 3, 1, 1, 1}));
  EXPECT_EQ(laid.seen("inputs", "slot", 3), (std::vector<float>{2, 0, 1}));
  const std::vector<float> pool = laid.seen("inputs", "pool", 9);
  for (const std::size_t nobodys : {0U, 3U, 6U})
    EXPECT_TRUE(std::isnan(pool[nobodys])) << "it is not to be read";
  EXPECT_EQ(pool[1], 10.0F);
  EXPECT_EQ(pool[8], 31.0F);
  float* const out = laid.at("outputs", "pool");
  for (int i = 0; i < 9; ++i) out[i] = static_cast<float>(i);
  for (int i = 0; i < 3; ++i) laid.at("outputs", "o")[i] = 5.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(step.after, (std::vector<float>{1, 2, 4, 5, 7, 8}));
  EXPECT_EQ(step.o, (std::vector<float>{5, 5, 5})) << "what it says of no slot is judged";
}

TEST(Edge, WithoutANullSlotARowOfItsOwnIsNotJudged) {
  Step step;
  LaidStep laid(step, Conventions::NullSlot::none);
  EXPECT_EQ(laid.seen("inputs", "slot", 3), (std::vector<float>{1, 2, 0}));
  EXPECT_EQ(laid.seen("inputs", "pool", 9), (std::vector<float>{10, 11, 0, 20, 21, 0, 30, 31, 0}));
  float* const out = laid.at("outputs", "pool");
  for (int i = 0; i < 9; ++i) out[i] = static_cast<float>(i);
  for (int i = 0; i < 3; ++i) laid.at("outputs", "o")[i] = 5.0F;
  laid.edge.read(laid.places);
  EXPECT_EQ(step.after, (std::vector<float>{0, 1, 3, 4, 6, 7}));
  EXPECT_EQ(step.o, (std::vector<float>{5, 0, 5}));
  // The memory next to it still belongs to the judge.
  LaidStep beside(step, Conventions::NullSlot::none);
  beside.at("outputs", "pool")[9] = 1.0F;
  EXPECT_THROW(beside.edge.read(beside.places), Trespass);
}

TEST(Edge, TheCanonicalPoolIsAsItStands) {
  Step step;
  LaidStep laid(step, Conventions::NullSlot::minus_one);
  EXPECT_EQ(laid.message["parameters"]["P"], 2);
  EXPECT_EQ(laid.seen("inputs", "slot", 3), (std::vector<float>{1, -1, 0}));
  EXPECT_EQ(laid.seen("inputs", "pool", 6), step.pool);
}

/// The rule token by token in double, with alpha = e^g rounded to bf16 as its caller gives it.
Outcome with_rounded_decay(const Arguments& a, const Given& given) {
  for (std::int64_t b = 0; b < a.q.shape[0]; ++b) {
    for (std::int64_t h = 0; h < a.v.shape[2]; ++h) {
      const std::int64_t dk = a.q.shape[3], dv = a.v.shape[3];
      Matrix<double> S = Matrix<double>::Zero(dk, dv);
      for (std::int64_t t = 0; t < a.q.shape[1]; ++t) {
        S *= given.given_g(a.g(b, t, h));
        for (std::int64_t j = 0; j < dv; ++j) {
          double read = 0.0, o = 0.0;
          for (std::int64_t i = 0; i < dk; ++i) read += a.k(b, t, h, i) * S(i, j);
          for (std::int64_t i = 0; i < dk; ++i) {
            S(i, j) += a.k(b, t, h, i) * a.beta(b, t, h) * (a.v(b, t, h, j) - read);
            o += a.q(b, t, h, i) * S(i, j);
          }
          a.o(b, t, h, j) = static_cast<float>(a.scale * o);
        }
      }
      for (std::int64_t i = 0; a.final_state.present() && i < dk; ++i) {
        for (std::int64_t j = 0; j < dv; ++j) a.final_state(b, h, i, j) = static_cast<float>(S(i, j));
      }
    }
  }
  return {};
}

/// The rule in double, q and k normalised as `given` has it, and rounded to the format of the contract's operands.
Outcome with_norm(Arguments a, const Given& given, Format rounded) {
  const std::int64_t dk = a.q.shape[3];
  std::vector<std::vector<float>> rows;
  for (View<const float, 4>* x : {&a.q, &a.k}) {
    rows.emplace_back();
    for (std::int64_t b = 0; b < x->shape[0]; ++b) {
      for (std::int64_t t = 0; t < x->shape[1]; ++t) {
        for (std::int64_t h = 0; h < x->shape[2]; ++h) {
          Matrix<double> row(1, dk);
          for (std::int64_t i = 0; i < dk; ++i) row(0, i) = (*x)(b, t, h, i);
          if (a.l2norm) row = given.normalised(row);
          for (std::int64_t i = 0; i < dk; ++i)
            rows.back().push_back(static_cast<float>(a.l2norm ? round_to(row(0, i), rounded) : row(0, i)));
        }
      }
    }
  }
  a.q = row_major<const float, 4>(rows[0].data(), a.q.shape);
  a.k = row_major<const float, 4>(rows[1].data(), a.k.shape);
  Given factor;
  factor.decay = Given::Decay::linear;
  return with_rounded_decay(a, factor);
}

/// A norm of its own is the oracle's and the twin's too; declared otherwise the same kernel fails.
TEST(Edge, AnEpsilonAndItsPlaceAreWhatTheOracleReads) {
  const auto given_as = [](Given::NormPlace place, double epsilon) {
    Given given;
    given.norm = place, given.norm_epsilon = epsilon;
    return given;
  };
  using enum Given::NormPlace;
  const std::vector<Given> norms = {
      {}, given_as(inside, 1e-5), given_as(outside, 1e-6), given_as(maximum, 1e-12)};
  for (const std::string contract : {"fp32", "bf16+state:fp32+output:fp32"}) {
    for (const Given& own : norms) {
      Kernel row;
      row.name = "mine.gated_delta_rule.recurrent", row.system = "gated_delta_rule", row.form = "recurrent";
      row.device = "cpu", row.contracts = {contract};
      const Format rounded = contract == "fp32" ? Format::fp32 : Format::bf16;
      row.run = [own, rounded](const Arguments& a, const Contract&) { return with_norm(a, own, rounded); };
      for (const Given& declared : norms) {
        KernelTable table(kernels());
        table.add(std::vector<Kernel>{row});
        table.converts(row.name, false, {}, [declared](const Contract&) { return declared; });
        const Case c = parse_case(
            "v1 gated_delta_rule form=recurrent T=96 dk=8 dv=16 l2norm=1 scale=1 regime=tiny_norms "
            "contract=" +
            contract + " kernel=" + row.name);
        const Judgement judged = run_case(c, table).judgement;
        EXPECT_EQ(judged.verdict, own == declared ? Verdict::pass : Verdict::fail)
            << contract << " " << own.norm_epsilon << " declared " << declared.norm_epsilon << ": "
            << judged.gate << " " << judged.reason;
      }
    }
  }
}

/// Converting without telling the oracle blames a kernel for what its caller rounded.
TEST(Edge, AConversionThatTheOracleDoesNotReadFailsARightKernel) {
  Given given;
  given.decay = Given::Decay::linear;
  given.g = Format::bf16;
  Kernel row;
  row.name = "mine.gated_delta_rule.recurrent", row.system = "gated_delta_rule", row.form = "recurrent";
  row.device = "cpu", row.contracts = {"fp32"};
  row.run = [given](const Arguments& a, const Contract&) { return with_rounded_decay(a, given); };
  const Case c = parse_case("v1 gated_delta_rule form=recurrent T=33 dk=8 dv=4 kernel=" + row.name);
  KernelTable table(kernels());
  table.add(std::vector<Kernel>{row});
  EXPECT_EQ(run_case(c, table).judgement.verdict, Verdict::fail);
  table.converts(row.name, false, {}, [given](const Contract&) { return given; });
  EXPECT_EQ(run_case(c, table).judgement.verdict, Verdict::pass);
}

}  // namespace
}  // namespace samestate
