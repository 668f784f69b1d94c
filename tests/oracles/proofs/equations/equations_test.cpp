#include "oracles/proofs/equations/equation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/planted.h"
#include "oracles/proofs/equations/rearrange.h"
#include "reference/error.h"
#include "reference/gated_delta_rule.h"

namespace samestate {
namespace {

using Outcome = Finding::Outcome;

/// The ids, documents, lines and verdicts of the ledger, extracted from it.
std::vector<std::string> ledger() {
  std::ifstream file(SAMESTATE_SOURCE_DIR "/tests/oracles/proofs/equations/ledger_ids.txt");
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') rows.push_back(line);
  }
  return rows;
}

TEST(Equations, AreTheRowsOfTheLedger) {
  std::vector<std::string> ours;
  for (const Equation& row : equations()) {
    ours.push_back(std::string(row.id) + " | " + std::string(row.document) + " | " + std::string(row.lines) +
                   " | " + std::string(name_of(row.verdict)));
  }
  EXPECT_EQ(ours.size(), 250U);
  EXPECT_EQ(ours, ledger());
}

TEST(Equations, CountsByVerdictAreThoseOfTheLedger) {
  std::map<std::string, std::map<std::string_view, int>> count;
  for (const Equation& row : equations()) {
    ++count[std::string(row.document)][name_of(row.verdict)];
    ++count["all"][name_of(row.verdict)];
  }
  // The ledger's summary table: OK, OK*, INCOMPLETE, AMBIGUOUS, INCONSISTENT, ERRATUM, UNTESTABLE.
  const std::map<std::string, std::vector<int>> summary = {
      {"000", {16, 3, 3, 2, 0, 7, 0}}, {"001", {30, 4, 2, 2, 1, 4, 1}},
      {"002", {22, 8, 0, 1, 3, 7, 1}}, {"003", {54, 3, 4, 1, 5, 16, 3}},
      {"004", {19, 7, 7, 1, 4, 6, 3}}, {"all", {141, 25, 16, 7, 13, 40, 8}}};
  const std::string_view verdicts[] = {"OK",           "OK*",     "INCOMPLETE", "AMBIGUOUS",
                                       "INCONSISTENT", "ERRATUM", "UNTESTABLE"};
  for (const auto& [document, counts] : summary) {
    for (std::size_t i = 0; i < 7; ++i)
      EXPECT_EQ(count[document][verdicts[i]], counts[i]) << document << verdicts[i];
  }
}

TEST(Equations, EveryRowComesOutAsItsVerdictSays) {
  for (const Equation& row : equations()) {
    const Finding finding = evaluate(row);
    EXPECT_EQ(name_of(finding.outcome), name_of(expected_outcome(row.verdict)))
        << row.id << ": " << finding.computed;
    EXPECT_FALSE(finding.computed.empty()) << row.id;
    EXPECT_FALSE(row.statement.empty()) << row.id;
    EXPECT_TRUE(finding.checks > 0 || row.verdict == LedgerVerdict::untestable) << row.id;
  }
}

TEST(Equations, OnlyOpinionsAreNotComputedAtAll) {
  std::set<std::string_view> without;
  for (const Equation& row : equations()) {
    if (evaluate(row).checks == 0) without.insert(row.id);
  }
  EXPECT_EQ(without, (std::set<std::string_view>{"RMS-7", "SSM-13"}));
}

TEST(Equations, AreTheSameTwice) {
  for (const Equation& row : equations()) EXPECT_EQ(evaluate(row).computed, evaluate(row).computed) << row.id;
}

TEST(Equations, FiltersCombineAndNameWhatTheyKnow) {
  EXPECT_EQ(select({}).size(), 250U);
  EXPECT_EQ(select({"003", "", "erratum", ""}).size(), 16U);
  EXPECT_EQ(select({"", "", "ok*", ""}).size(), 25U);
  EXPECT_EQ(select({"", "", "", "cost-31a"}).front()->id, "COST-31a");
  const auto message = [](const EquationFilter& filter) {
    try {
      (void)select(filter);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({"005", "", "", ""}),
            "document 005: the ledger has no such document; known: 000, 001, 002, 003, 004");
  EXPECT_NE(message({"", "", "maybe", ""}).find("OK, AMBIGUOUS, ERRATUM"), std::string::npos);
  EXPECT_NE(message({"", "norm", "", ""}).find("norms"), std::string::npos);
  EXPECT_NE(message({"", "", "", "RMS-9"}).find("RMS-8"), std::string::npos);
  EXPECT_NE(message({"", "", "", "XYZ-1"}).find("known: CFG, GDN"), std::string::npos);
  EXPECT_NE(message({"000", "", "", "RMS-5"}).find("together"), std::string::npos);
}

// Rows whose reference is made wrong.

TEST(PlantedFaults, AWriteWithoutTheDeltaTermFails) {
  EXPECT_EQ(finding_of_the_write<GatedDeltaRule>().outcome, Outcome::erratum_demonstrated);
  const Finding finding = finding_of_the_write<Retention>();
  EXPECT_EQ(finding.outcome, Outcome::failed);
  EXPECT_NE(finding.computed.find("correct S_2 = 2, not 1"), std::string::npos) << finding.computed;
}

TEST(PlantedFaults, AWriteStrengthThatIsSiluFails) {
  EXPECT_EQ(finding_of_the_write_strength([](double b) { return logistic(b); }).outcome, Outcome::resolved);
  EXPECT_EQ(finding_of_the_write_strength([](double b) { return silu(b); }).outcome, Outcome::failed);
}

TEST(PlantedFaults, AModelOfAnotherSizeFails) {
  costs::Qwen3NextConfig config;
  EXPECT_EQ(finding_of_the_model_size(config).outcome, Outcome::holds);
  config.tied_embeddings = true;
  EXPECT_EQ(finding_of_the_model_size(config).outcome, Outcome::failed);
  config = {};
  config.full_attention_interval = 3;
  EXPECT_EQ(finding_of_the_model_size(config).outcome, Outcome::failed);
}

TEST(PlantedFaults, AStateWithoutItsOverlapFails) {
  costs::DendriticConfig config;
  EXPECT_EQ(finding_of_the_state_memory(config).outcome, Outcome::erratum_demonstrated);
  config.overlap = 0;
  EXPECT_EQ(finding_of_the_state_memory(config).outcome, Outcome::failed);
}

TEST(PlantedFaults, BranchWeightsOfAnotherReadingFail) {
  // R2 under the name of R1: shared 1 each, routed as they are, all by the sum.
  const auto literal = [](const std::vector<double>& chosen, Index shared, bool) {
    Matrix<double> w = Matrix<double>::Ones(1, shared + static_cast<Index>(chosen.size()));
    for (std::size_t i = 0; i < chosen.size(); ++i) w(0, shared + static_cast<Index>(i)) = chosen[i];
    return Matrix<double>(w / w.sum());
  };
  EXPECT_EQ(finding_of_the_branch_weights(literal).outcome, Outcome::failed);
}

TEST(Computation, EachComparisonSeesItsFault) {
  const Matrix<double> a = Matrix<double>::Constant(2, 2, 1.0);
  Matrix<double> b = a;
  b(1, 0) += 1e-12;
  const auto failed = [](const Computation& c) { return c.holds().outcome == Outcome::failed; };
  EXPECT_FALSE(failed(Computation().count("n", 3, 3)));
  EXPECT_TRUE(failed(Computation().count("n", 3, 4)));
  EXPECT_TRUE(failed(Computation().shape("s", {2, 3}, {3, 2})));
  EXPECT_FALSE(failed(Computation().rounds_to("x", 41.943, 41.94, 2)));
  EXPECT_TRUE(failed(Computation().rounds_to("x", 41.946, 41.94, 2)));
  EXPECT_FALSE(failed(Computation().rounds_to("x", -55.95, -56, 0)));
  EXPECT_FALSE(failed(Computation().equal("x", 1.0 + 1e-14, 1.0)));
  EXPECT_TRUE(failed(Computation().equal("x", 1.0 + 1e-12, 1.0)));
  EXPECT_TRUE(failed(Computation().equal("x", std::nan(""), 1.0)));
  EXPECT_TRUE(failed(Computation().agree("x", a, b)));
  EXPECT_TRUE(failed(Computation().agree("x", a, Matrix<double>::Ones(2, 3).eval())));
  EXPECT_TRUE(failed(Computation().identical("x", a, (a * (1.0 + 1e-15)).eval())));
  EXPECT_TRUE(failed(Computation().relation("x", false)));
  EXPECT_TRUE(failed(Computation().contrast("x", 2.0, 2.0001)));
  EXPECT_TRUE(failed(Computation().contrast("x", "a", "a")));
  EXPECT_TRUE(failed(Computation().contrast_all("x", a, b)));
  EXPECT_FALSE(failed(Computation().contrast_all("x", (2.0 * a).eval(), a)));
}

TEST(Computation, ShowsNothingWithoutComputing) {
  EXPECT_EQ(Computation().holds().outcome, Outcome::failed);
  EXPECT_EQ(Computation().remark("words").resolved().outcome, Outcome::failed);
  EXPECT_EQ(Computation().count("n", 1, 1).erratum().outcome, Outcome::failed) << "no contrast";
  EXPECT_EQ(Computation().contrast("n", 1.0, 2.0).erratum().outcome, Outcome::erratum_demonstrated);
  EXPECT_EQ(Computation().untestable("opinion").outcome, Outcome::untestable);
  EXPECT_EQ(Computation().count("n", 1, 2).untestable("opinion").outcome, Outcome::failed);
}

TEST(Computation, AFailureHidesBehindNoSuccess) {
  const Finding finding = Computation().count("a", 1, 1).count("b", 1, 2).count("c", 3, 3).holds();
  EXPECT_EQ(finding.outcome, Outcome::failed);
  EXPECT_EQ(finding.computed, "b = 1, not 2");
  EXPECT_EQ(finding.checks, 3);
}

TEST(Computation, ARowThatThrowsHasFailed) {
  const Equation row{"X-1",
                     "000",
                     "L1",
                     "costs",
                     "a row",
                     LedgerVerdict::ok,
                     []() -> Finding { throw Error("windows: no"); }};
  EXPECT_EQ(evaluate(row).outcome, Outcome::failed);
  EXPECT_EQ(evaluate(row).computed, "windows: no");
}

TEST(Rearrangement, MovesMergesSplitsAndRepeats) {
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(Rearrangement("a b -> b a", {2, 3}).sources(), (Shape{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(Rearrangement("a (b c) -> (a c) b", {1, 6}, {{"b", 2}}).sources(), (Shape{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(Rearrangement("a -> (r a)", {2}, {{"r", 2}}).sources(), (Shape{0, 1, 0, 1}));
  EXPECT_EQ(Rearrangement("a -> (a r)", {2}, {{"r", 2}}).sources(), (Shape{0, 0, 1, 1}));
  EXPECT_EQ(Rearrangement("b l (h d) -> h b l d", {2, 5, 12}, {{"h", 3}}).shape(), (Shape{3, 2, 5, 4}));
  EXPECT_THROW(Rearrangement("a b -> b a", {2}), Error);
  EXPECT_THROW(Rearrangement("(a b) -> a b", {6}), Error);
  EXPECT_THROW(Rearrangement("(a b) -> a b", {6}, {{"a", 4}}), Error);
  EXPECT_THROW(Rearrangement("a -> a r", {2}), Error);
  EXPECT_THROW(Rearrangement("a b", {2, 3}), Error);
  EXPECT_THROW(Rearrangement("(a b -> a b", {6}, {{"a", 2}}), Error);
}

TEST(Rearrangement, EinsumAndExpandKnowTheirShapes) {
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(einsum_shape("ij,jk->ik", {{2, 3}, {3, 4}}), (Shape{2, 4}));
  EXPECT_THROW((void)einsum_shape("ij,jk->ik", {{2, 3}, {4, 4}}), Error);
  EXPECT_THROW((void)einsum_shape("ij,jk->ik", {{2, 3}}), Error);
  EXPECT_THROW((void)einsum_shape("ij->k", {{2, 3}}), Error);
  EXPECT_EQ(expanded_shape({2, 1}, {-1, 4}), (Shape{2, 4}));
  EXPECT_EQ(expanded_shape({3}, {2, -1}), (Shape{2, 3}));
  EXPECT_THROW((void)expanded_shape({2, 32}, {-1, -1, 128, 128}), Error);
  EXPECT_THROW((void)expanded_shape({2, 3}, {2, 4}), Error);
  EXPECT_THROW((void)expanded_shape({2, 3}, {2}), Error);
}

}  // namespace
}  // namespace samestate
