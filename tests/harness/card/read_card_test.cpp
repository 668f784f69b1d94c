/// Cards read of kernels whose card is known.
#include "harness/card/read_card.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "harness/card/neighbours.h"
#include "harness/card/probe_files.h"
#include "harness/systems/saved_run.h"
#include "optimized/cpu/twin.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "reference/error.h"
#include "tests/facts.h"
#include "tests/harness/card/known_twin.h"
#include "tests/harness/card/plain_kernel.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using testing::known_table;
using testing::score_of;

TEST(ReadCard, OfACpuKernelIsTheContractThatItIsCalledWith) {
  KernelTable table(kernels());
  for (const char* contract : {"bf16_fused", "bf16"}) {
    CardOptions options;
    options.contract = contract;
    const auto row = std::find_if(table.all().begin(), table.all().end(), [](const KernelRow& k) {
      return k.name == "cpu.gated_delta_rule.chunked";
    });
    const CardRow card = read_card(table, *row, options);
    EXPECT_TRUE(card.explained) << card.contract << " " << card.farthest;
    // Its sums are in fp32 whatever the contract allows them to be.
    Contract truth = contract_named(contract);
    truth.accumulator = Accumulator::fp32;
    EXPECT_EQ(score_of(card, truth).wrong, 0) << score_of(card, truth).text;
    const auto told =
        std::count_if(card.points.begin(), card.points.end(), [](const CardPoint& p) { return p.told; });
    EXPECT_GE(told, 8);
    EXPECT_FALSE(card.cases.empty());
    for (const CardCase& c : card.cases) EXPECT_EQ(c.verdict, "pass") << c.line;
  }
}

// In a 16-bit output, the order of sums changes few roundings or none, so it is not evidence if a wrong
// contract changes none.
TEST(ReadCard, FindsNoPointInAFewTurnedRoundings) {
  KernelTable table(kernels());
  CardOptions options;
  options.contract = "fp32+input:bf16+output:bf16";
  table.keep(options.contract);
  const auto row = std::find_if(table.all().begin(), table.all().end(),
                                [](const KernelRow& k) { return k.name == "cpu.delta_rule.chunked"; });
  const CardRow card = read_card(table, *row, options);
  EXPECT_TRUE(card.explained) << card.contract << " " << card.farthest;
  EXPECT_EQ(score_of(card, contract_named(options.contract)).wrong, 0) << card.contract;
}

TEST(ReadCard, SaysWhatNoContractExplains) {
  // A product that is off by a part in a thousand is not a rounding.
  KernelTable table = faulty::planted_table(faulty::after(
      [](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x *= 1.02F; }); }));
  const auto row = std::find_if(table.all().begin(), table.all().end(), [](const KernelRow& k) {
    return k.name == "planted.gated_delta_rule.chunked";
  });
  CardOptions options;
  options.contract = "bf16";
  const CardRow card = read_card(table, *row, options);
  EXPECT_FALSE(card.explained);
  EXPECT_GT(card.farthest, kCardExplained);
}

const KernelRow& plain_row(const KernelTable& table) { return table.all().back(); }

const CardPoint& point_of(const CardRow& card, std::string_view name) {
  return *std::ranges::find(card.points, name, &CardPoint::name);
}

bool is_like(const CardPoint& point, std::string_view value) {
  return point.value == value || std::ranges::find(point.like, value, &CardValue::value) != point.like.end();
}

// Sums of fp32 in an order that no twin has are nearer to the one accumulator's or the other's by chance: bf16_u_fp32 in plain
// loops was told apart as a tensor core's, 52 times.
TEST(ReadCard, OfPlainLoopsTheAccumulatorIsNotToldApartByChance) {
  for (const char* declared : {"bf16", "bf16_u_fp32+accumulator:fp32"}) {
    const KernelTable table = testing::plain_table({}, declared);
    const CardRow card = read_card(table, plain_row(table), {});
    EXPECT_TRUE(card.explained) << card.contract << " " << card.farthest;
    EXPECT_TRUE(is_like(point_of(card, "accumulator"), "fp32")) << card.contract;
    EXPECT_FALSE(point_of(card, "accumulator").told);
    Contract truth = contract_named("bf16_u_fp32");
    truth.exponential = Exponential::exact;
    truth.accumulator = Accumulator::fp32;
    truth.norm = Norm::unrounded;
    truth.qk = Format::bf16;
    EXPECT_EQ(score_of(card, truth).wrong, 0) << score_of(card, truth).text;
    // A state kept in fp32 looks the same where its products are three of tf32 parts (about 21 bits): that is told too.
    const auto told = std::ranges::count_if(card.points, [](const CardPoint& point) {
      return point.told ||
             (point.value == "fp32" && point.like.size() == 1 && point.like.front().value == "tf32x3");
    });
    EXPECT_GE(told, 15);
  }
}

// A twin's own order, though, is seen: the kernel that has it is the twin to the bit, on all probes.
TEST(ReadCard, OfTheTwinsOwnSumsTheAccumulatorIsToldApart) {
  for (const char* truth : {"bf16", "bf16+accumulator:fp32"}) {
    const KernelTable table = known_table(contract_named(truth), "bf16");
    const CardRow card = read_card(table, plain_row(table), {});
    EXPECT_TRUE(point_of(card, "accumulator").told) << truth;
    EXPECT_EQ(card.contract, truth);
  }
}

TEST(ReadCard, NamesTheProbeThatHoldsTheFit) {
  testing::Plain twice;
  twice.rounds_k_twice = true;
  const KernelTable table = testing::plain_table(twice, "fp32");
  const CardRow card = read_card(table, plain_row(table), {});
  EXPECT_FALSE(card.explained);
  const auto worst = std::ranges::max_element(card.probes, {}, &CardProbe::left);
  EXPECT_EQ(card.worst, worst->name);
  EXPECT_EQ(worst->left, card.farthest);
  EXPECT_FALSE(worst->explained);
  // k in all its bits is what the two roundings of it part by.
  EXPECT_NE(card.worst.find("24 bits"), std::string::npos) << card.worst;
  const auto explained = std::ranges::count_if(card.probes, &CardProbe::explained);
  EXPECT_GE(explained, std::ssize(card.probes) - 2);
  EXPECT_EQ(card.twice, std::vector<std::string>{"beta_exp_k"});
  EXPECT_TRUE(card.loads.empty());
}

TEST(ReadCard, TriesTheFormatsToWhichAKernelMayRoundWhatItLoads) {
  for (const Format format : {Format::fp32, Format::fp16, Format::bf16}) {
    testing::Plain loads;
    loads.operands = Format::fp32;
    loads.loads = format;
    const KernelTable table = testing::plain_table(loads, "fp32");
    const CardRow card = read_card(table, plain_row(table), {});
    EXPECT_TRUE(card.explained) << card.contract << " " << card.farthest;
    EXPECT_EQ(card.loads, format == Format::fp32 ? "" : name_of(format));
    EXPECT_EQ(contract_named(card.contract).input, format) << card.contract;
    for (const CardCase& c : card.cases) EXPECT_EQ(c.verdict, "pass") << c.line << " " << c.gate;
  }
}

/// The delta rule in plain loops, o from the state after the token; v is rounded as it is loaded.
KernelTable delta_table(const std::string& declared, Format loads_v = Format::fp32) {
  KernelTable table(kernels());
  Kernel row;
  row.name = "plain.delta_rule.recurrent";
  row.system = "delta_rule";
  row.form = "recurrent";
  row.device = "cpu";
  row.contracts = {declared};
  row.run = [loads_v](const Arguments& a, const Contract&) {
    const auto dk = a.k.shape[3], dv = a.v.shape[3];
    for (std::int64_t n = 0; n < a.q.shape[0]; ++n) {
      for (std::int64_t h = 0; h < a.v.shape[2]; ++h) {
        const std::int64_t kh = h / (a.v.shape[2] / a.k.shape[2]);
        std::vector<float> S(static_cast<std::size_t>(dk * dv));
        for (std::int64_t i = 0; a.initial_state.present() && i < dk * dv; ++i)
          S[static_cast<std::size_t>(i)] = a.initial_state(n, h, i / dv, i % dv);
        for (std::int64_t t = 0; t < a.q.shape[1]; ++t) {
          const auto length = [&](const auto& x) {
            float squares = 0.0F;
            for (std::int64_t l = 0; l < dk; ++l) squares += x(n, t, kh, l) * x(n, t, kh, l);
            return a.l2norm ? 1.0F / std::sqrt(squares + 1e-6F) : 1.0F;
          };
          const float q_factor = length(a.q), k_factor = length(a.k);
          for (std::int64_t c = 0; c < dv; ++c) {
            float held = 0.0F, o = 0.0F;
            const auto at = [&](std::int64_t l) -> float& { return S[static_cast<std::size_t>(l * dv + c)]; };
            for (std::int64_t l = 0; l < dk; ++l) held += a.k(n, t, kh, l) * k_factor * at(l);
            const float u = a.beta(n, t, h) * (round_to(a.v(n, t, h, c), loads_v) - held);
            for (std::int64_t l = 0; l < dk; ++l)
              o += a.q(n, t, kh, l) * q_factor * (at(l) += a.k(n, t, kh, l) * k_factor * u);
            a.o(n, t, h, c) = o * a.scale;
          }
        }
        for (std::int64_t i = 0; a.final_state.present() && i < dk * dv; ++i)
          a.final_state(n, h, i / dv, i % dv) = S[static_cast<std::size_t>(i)];
      }
    }
    return Outcome{};
  };
  table.add(std::span(&row, 1));
  return table;
}

// No format of an operand is fp16's of q and k that may be of any size: what tells it from tf32 are numbers below 2^-14, and the
// card that took it for tf32 failed 9 of 300 cases. Nor has a recurrent form a word for v.
TEST(ReadCard, NamesTensorsThatAreRoundedAlone) {
  testing::Plain loads;
  loads.operands = Format::fp32;
  loads.loads = Format::fp16;
  loads.loads_v = false;
  const auto says = [](const KernelTable& table, const char* name, Format format) {
    const CardRow card = read_card(table, plain_row(table), {});
    EXPECT_FALSE(card.explained) << card.contract << " " << name;
    EXPECT_EQ(card.loads_alone, name) << card.contract;
    EXPECT_EQ(card.loads_alone_format, name_of(format)) << card.contract;
  };
  says(testing::plain_table(loads, "fp32"), "q and k", Format::fp16);
  says(delta_table("fp32", Format::bf16), "v alone", Format::bf16);
  says(delta_table("fp32", Format::fp16), "v alone", Format::fp16);
}

// A chunked form has: v with beta in T is an operand as it is.
TEST(ReadCard, HasAWordForSomeTensorsThatAreRoundedAlone) {
  testing::Plain loads;
  loads.operands = Format::fp32;
  loads.loads = Format::bf16;
  loads.loads_qk = false;
  const KernelTable table = testing::plain_table(loads, "fp32");
  const CardRow card = read_card(table, plain_row(table), {});
  EXPECT_TRUE(card.explained) << card.farthest;
  EXPECT_EQ(card.contract, "fp32+beta_in_T:yes+beta_v:bf16");
  EXPECT_EQ(card.loads_alone, "");
}

// It was bf16_fused+output:fp32, of which reads_old_state and ex2 are what no output tells.
TEST(ReadCard, OfValuesThatAreAlikeTheDeclaredOnesAreTheContracts) {
  const KernelTable table = delta_table("fp32+input:bf16");
  const CardRow card = read_card(table, plain_row(table), {});
  EXPECT_TRUE(card.explained) << card.contract << " " << card.farthest;
  const Contract& found = contract_named(card.contract);
  EXPECT_FALSE(found.reads_old_state) << card.contract;
  EXPECT_EQ(found.exponential, Exponential::exact) << card.contract;
  EXPECT_EQ(found.inverse, Inverse::substitution) << card.contract << ", which no recurrent form reads";
  EXPECT_TRUE(is_like(point_of(card, "reads_old_state"), "yes"));
}

TEST(ReadCard, NamesTheFirstValueThatIsNoNumber) {
  const auto card_with = [](float value, std::int64_t from) {
    KernelTable table = faulty::planted_table(faulty::after([=](const Arguments& a) {
      faulty::each(a.o, [=](float& x, const auto& at) {
        if (a.g.present() && a.l2norm && at[1] >= from && at[3] >= 5) x = value;
      });
    }));
    const auto row = std::ranges::find(table.all(), "planted.gated_delta_rule.chunked", &KernelRow::name);
    CardOptions options;
    options.contract = "bf16";
    return read_card(table, *row, options);
  };
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const CardRow card = card_with(value, 9);
    EXPECT_FALSE(card.explained);
    const auto named =
        std::ranges::count_if(card.probes, [](const CardProbe& p) { return !p.nonfinite.empty(); });
    EXPECT_EQ(named, 2) << "the two probes with a norm inside";
    const auto probe = std::ranges::find(card.probes, "several chunks, norm", &CardProbe::name);
    EXPECT_EQ(lacking(probe->nonfinite, "o sequence 0 token 9 head 0 channel 5"), "") << probe->nonfinite;
  }
}

TEST(ReadCard, OfOutputsThatAreNoNumbersThereIsNoContract) {
  KernelTable table = faulty::planted_table(faulty::after([](const Arguments& a) {
    faulty::each(a.o, [](float& x, const auto&) { x = std::numeric_limits<float>::quiet_NaN(); });
  }));
  const auto row = std::ranges::find(table.all(), "planted.gated_delta_rule.chunked", &KernelRow::name);
  CardOptions options;
  options.contract = "bf16";
  const CardRow card = read_card(table, *row, options);
  EXPECT_FALSE(card.explained);
  EXPECT_EQ(card.contract, "");
  EXPECT_TRUE(card.cases.empty());
  EXPECT_TRUE(std::ranges::none_of(card.probes, [](const CardProbe& p) { return p.nonfinite.empty(); }));
}

// A hard reset that is not clamped passed all six cases, none of which had one.
TEST(ReadCard, TheGatesCasesHaveAReset) {
  KernelTable table = faulty::planted_table([](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    bool reset = false;
    for (std::int64_t t = 0; t < a.g.shape[1]; ++t) reset = reset || a.g(0, t, 0) < -1e30F;
    if (reset) a.o(0, a.g.shape[1] - 1, 0, 0) = std::numeric_limits<float>::quiet_NaN();
    return outcome;
  });
  const auto row = std::ranges::find(table.all(), "planted.gated_delta_rule.chunked", &KernelRow::name);
  CardOptions options;
  options.contract = "bf16";
  const CardRow card = read_card(table, *row, options);
  EXPECT_TRUE(card.explained);
  EXPECT_EQ(std::ranges::count(card.cases, "fail", &CardCase::verdict), 1);
}

// Scores are about the drift of where the search is, and of two contracts each was better seen from the other: it went to and
// fro for ever.
TEST(ReadCard, TheSearchGoesBackToNone) {
  for (const char* contract : {"fp32+U:tf32+beta_v:tf32", "fp16+beta_k:fp32"}) {
    KernelTable table(kernels());
    CardOptions options;
    options.contract = contract;
    int asked = 0;
    options.stop = [&] { return ++asked > 40000; };
    const auto row = std::ranges::find(table.all(), "cpu.gated_delta_rule.chunked", &KernelRow::name);
    const CardRow card = read_card(table, *row, options);
    EXPECT_EQ(card.stopped, "") << contract << " " << card.twins;
    EXPECT_TRUE(card.explained) << card.contract << " " << card.farthest;
  }
}

TEST(ReadCard, StopsWhereItIsToldTo) {
  const KernelTable table = known_table(contract_named("bf16+beta_k:bf16"), "bf16");
  CardOptions options;
  int asked = 0;
  options.stop = [&] { return ++asked > 20; };
  const std::vector<Probe> probes = probes_of(table.all().back(), "bf16");
  std::vector<ProbeRun> runs;
  for (const Probe& probe : probes) runs.push_back(run_probe(table, probe));
  const CardRow card = card_of(table.all().back(), probes, runs, options);
  EXPECT_EQ(card.stopped, "interrupted");
  EXPECT_LT(card.twins, 250);
}

TEST(ReadCard, TakesOutputsFromFiles) {
  const KernelTable table = known_table(contract_named("bf16"), "bf16");
  const std::vector<Probe> probes = probes_of(table.all().back(), "bf16");
  const std::string folder = ::testing::TempDir() + "card_probes";
  std::filesystem::remove_all(folder);
  EXPECT_EQ(write_probes(folder, table.all().back(), probes).size(), probes.size());
  std::vector<ProbeRun> empty = read_probes(folder, probes);
  EXPECT_FALSE(empty.front().refused.empty());
  EXPECT_THROW((void)card_of(table.all().back(), probes, empty, {}), Error);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    RunFile file = read_run_file(entry.path(), named_shapes);
    const Resolved r(parse_case(file.case_line));
    const auto at = std::find_if(probes.begin(), probes.end(), [&](const Probe& p) {
      return entry.path().filename().string().starts_with(fmt::format("{:02}_", &p - probes.data()));
    });
    const ProbeRun run = run_probe(table, *at);
    file.tensors["o"].values.assign(run.outputs.o.begin(), run.outputs.o.end());
    file.tensors["final_state"].values.assign(run.outputs.final_state.begin(), run.outputs.final_state.end());
    write_run_file(entry.path(), file, named_shapes);
  }
  // Whatever fits the data: they were written for another contract.
  EXPECT_THROW((void)read_probes(folder, probes_of(table.all().back(), "bf16_fused")), Error);
  const CardRow card = card_of(table.all().back(), probes, read_probes(folder, probes), {});
  EXPECT_TRUE(card.explained);
  EXPECT_EQ(score_of(card, contract_named("bf16")).wrong, 0) << score_of(card, contract_named("bf16")).text;
  std::filesystem::remove_all(folder);
}

Neighbours neighbours_under(const char* does, const char* declared) {
  const KernelTable table = known_table(contract_named(does), declared);
  const Case c =
      parse_case(fmt::format("v1 gated_delta_rule kernel=known.gated_delta_rule.chunked T=192 dk=64 dv=64 "
                             "contract={} regime=collinear "
                             "state=random seed=0x5",
                             declared));
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  EXPECT_EQ(record.judgement.verdict, Verdict::fail);
  EXPECT_TRUE(is_about_the_contract(Resolved(c), record.judgement)) << record.judgement.gate;
  return neighbours_of(Resolved(c), trace, 60.0);
}

TEST(Neighbours, NameTheContractThatTheOutputsKeep) {
  const Neighbours one = neighbours_under("bf16+beta_k:bf16", "bf16");
  ASSERT_FALSE(one.passes.empty()) << one.text();
  EXPECT_EQ(one.passes.front(), "bf16+beta_k:bf16");
  EXPECT_EQ(one.changes, 1);
  const Neighbours two = neighbours_under("bf16+beta_k:bf16+inverse:block16/tf32_truncated", "bf16");
  ASSERT_FALSE(two.passes.empty()) << two.text();
  EXPECT_EQ(lacking(two.text(), "passes contract bf16+beta_k:bf16+inverse:block16/tf32_truncated"), "")
      << two.text();
}

TEST(Neighbours, SayThatNoContractExplainsAScale) {
  KernelTable table = faulty::planted_table(faulty::after(
      [](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x *= 1.006F; }); }));
  const Case c = parse_case(
      "v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked T=192 dk=64 dv=64 contract=bf16_out_fp32 "
      "regime=normal "
      "state=random seed=0x5");
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  const Neighbours none = neighbours_of(Resolved(c), trace, 20.0);
  EXPECT_TRUE(none.passes.empty()) << none.text();
  EXPECT_NE(none.text().find("no other contract"), std::string::npos);
}

}  // namespace
}  // namespace samestate
