/// Cards read of kernels whose card is known: twins of contracts that are drawn.
#include "harness/card/read_card.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>

#include "harness/card/neighbours.h"
#include "harness/card/probe_files.h"
#include "harness/systems/saved_run.h"
#include "optimized/cpu/twin.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "reference/error.h"
#include "tests/harness/planted.h"
#include "tests/harness/random_contract.h"

namespace samestate {
namespace {

/// A kernel that is the twin of `card`, whatever it is called with; it declares `declared`.
KernelTable known_table(const Contract& card, const std::string& declared,
                        const std::string& system = "gated_delta_rule", const std::string& form = "chunked",
                        bool own_sums = false) {
  KernelTable table(kernels());
  const Kernel base = table.named("cpu." + system + "." + form);
  Kernel row;
  row.name = "known." + system + "." + form;
  row.system = system;
  row.form = form;
  row.device = "cpu";
  row.contracts = {declared};
  row.run = [card, system, form, own_sums, base](const Arguments& a, const Contract&) {
    Contract c = a.l2norm ? with_l2norm(card) : card;
    if (own_sums) return base.run(a, c);
    return run_twin(system, form, a, form == "recurrent" ? recurrent_contract(c) : c);
  };
  table.add(std::span(&row, 1));
  return table;
}

struct Score {
  int points = 0, wrong = 0;
  std::string text;
};

/// Points of the true card that are neither found nor among those that no output tells apart.
Score score_of(const CardRow& row, const Contract& truth) {
  Score score;
  for (const CardPoint& p : row.points) {
    const std::string value = contract_point(p.name).value(truth);
    ++score.points;
    const bool like =
        std::any_of(p.like.begin(), p.like.end(), [&](const CardValue& v) { return v.value == value; });
    if (p.value == value || like) continue;
    ++score.wrong;
    score.text += fmt::format(" {}: {} for {}", p.name, p.value, value);
  }
  return score;
}

/// `own_sums`: the kernel sums in an order of its own.
Score card_of_drawn(std::uint64_t seed, double* seconds, bool own_sums = false) {
  std::mt19937_64 random(seed);
  const Format input = seed % 4 == 3 ? Format::fp16 : seed % 4 == 2 ? Format::fp32 : Format::bf16;
  const Contract& truth = testing::random_contract(random, 1 + static_cast<int>(seed % 4), input);
  const std::string declared = input == Format::fp16 ? "fp16" : input == Format::fp32 ? "tf32" : "bf16";
  const KernelTable table = known_table(truth, declared, "gated_delta_rule", "chunked", own_sums);
  CardOptions options;
  const std::vector<Probe> probes = probes_of(table.all().back(), declared);
  std::vector<ProbeRun> runs;
  for (const Probe& probe : probes) runs.push_back(run_probe(table, probe));
  const CardRow row = card_of(table.all().back(), probes, runs, options);
  Contract expected = truth;
  // What is neither is found as the nearer of the two.
  if (own_sums) {
    const auto at = std::find_if(row.points.begin(), row.points.end(),
                                 [](const CardPoint& p) { return p.name == "accumulator"; });
    expected.accumulator = at->value == "fp32" ? Accumulator::fp32 : Accumulator::tensor_core;
  }
  Score score = score_of(row, expected);
  *seconds = row.seconds;
  score.text = fmt::format("{} found {} left {:.2g} ({} twins, {:.1f} s):{}", truth.name, row.contract,
                           row.farthest, row.twins, row.seconds, score.text);
  return score;
}

TEST(ReadCard, FindsTheCardOfKnownTwins) {
  int points = 0;
  int wrong = 0;
  for (const std::uint64_t seed : {4, 5, 6, 7}) {
    double seconds = 0.0;
    const Score score = card_of_drawn(seed, &seconds);
    points += score.points;
    wrong += score.wrong;
    EXPECT_LE(score.wrong, 1) << score.text;
  }
  EXPECT_GE(points, 80);
  EXPECT_LE(wrong, 2);
}

int whole_cards(bool own_sums) {
  int points = 0;
  int wrong = 0;
  int whole = 0;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    double seconds = 0.0;
    const Score score = card_of_drawn(seed, &seconds, own_sums);
    fmt::print("{} {}\n", score.wrong == 0 ? "ok  " : "MISS", score.text);
    points += score.points;
    wrong += score.wrong;
    whole += score.wrong == 0 ? 1 : 0;
  }
  fmt::print("{} of {} cards whole, {} of {} points missed\n", whole, 30, wrong, points);
  return whole;
}

TEST(ReadCard, LongFindsTheCardsOfThirtyTwins) { EXPECT_GE(whole_cards(false), 27); }
TEST(ReadCard, LongFindsTheCardsOfThirtyKernels) { EXPECT_GE(whole_cards(true), 25); }

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

// Of an output in 16 bit the order of sums turns few roundings or none: that a wrong contract turns none is no sign.
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
  // A product that is off by a part in a thousand is no rounding.
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
  EXPECT_LT(card.twins, 200);
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
    RunFile file = read_run_file(entry.path());
    const Resolved r(parse_case(file.case_line));
    const auto at = std::find_if(probes.begin(), probes.end(), [&](const Probe& p) {
      return entry.path().filename().string().starts_with(fmt::format("{:02}_", &p - probes.data()));
    });
    const ProbeRun run = run_probe(table, *at);
    file.tensors["o"].values.assign(run.outputs.o.begin(), run.outputs.o.end());
    file.tensors["final_state"].values.assign(run.outputs.final_state.begin(), run.outputs.final_state.end());
    write_run_file(entry.path(), file);
  }
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
  return neighbours_of(Resolved(c), run_file_of(record, trace), 60.0);
}

TEST(Neighbours, NameTheContractThatTheOutputsKeep) {
  const Neighbours one = neighbours_under("bf16+beta_k:bf16", "bf16");
  ASSERT_FALSE(one.passes.empty()) << one.text();
  EXPECT_EQ(one.passes.front(), "bf16+beta_k:bf16");
  EXPECT_EQ(one.changes, 1);
  const Neighbours two = neighbours_under("bf16+beta_k:bf16+inverse:block16/tf32_truncated", "bf16");
  ASSERT_FALSE(two.passes.empty()) << two.text();
  EXPECT_NE(two.text().find("passes under contract bf16+beta_k:bf16+inverse:block16/tf32_truncated"),
            std::string::npos)
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
  const Neighbours none = neighbours_of(Resolved(c), run_file_of(record, trace), 20.0);
  EXPECT_TRUE(none.passes.empty()) << none.text();
  EXPECT_NE(none.text().find("no contract"), std::string::npos);
}

}  // namespace
}  // namespace samestate
