// Agreement with the numpy prototype on fixtures/bounds (made by make_prototype.py, described in its
// manifest).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fixtures/safetensors.h"
#include "oracles/bounds/chunked.h"
#include "oracles/bounds/recurrent.h"
#include "reference/gated_delta_rule.h"
#include "reference/retention.h"

namespace samestate {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(SAMESTATE_SOURCE_DIR) + "/fixtures/bounds/";
constexpr std::array kModes = {Mode::det, Mode::prob, Mode::semi};  // the order of the manifest

/// Both sides compute the same formulas in float64 in another order: Eigen's products and its triangular
/// solve against BLAS and LU. Measured: median 4e-16, all but a few cases below 1e-13. Nearly equal keys in
/// chunks of one token cancel eighty times over: 3e-12.
constexpr double kAgreement = 1e-11;

/// The exponentials and products as BOUNDS 4, 5 and the prototype have them; the default is what was measured since.
constexpr ExponentialModel kDocumented{2.0, 0.0, 3.0, 1.5, 0.0, 0.0, false, false};

Format format_of(const std::string& name) {
  static const std::map<std::string, Format> formats = {
      {"none", Format::none}, {"fp32", Format::fp32},
      {"tf32", Format::tf32}, {"tf32_truncated", Format::tf32_truncated},
      {"bf16", Format::bf16}, {"fp16", Format::fp16}};
  return formats.at(name);
}

Contract contract_of(const Json& fields) {
  Contract c;
  const std::map<std::string, Format*> formats = {{"qk", &c.qk},
                                                  {"beta_k", &c.beta_k},
                                                  {"A", &c.A},
                                                  {"inverse_operand", &c.inverse_operand},
                                                  {"T", &c.T},
                                                  {"beta_v", &c.beta_v},
                                                  {"beta_exp_k", &c.beta_exp_k},
                                                  {"U", &c.U},
                                                  {"W", &c.W},
                                                  {"state_operand", &c.state_operand},
                                                  {"v_new", &c.v_new},
                                                  {"v_decayed", &c.v_decayed},
                                                  {"k_decayed", &c.k_decayed},
                                                  {"P", &c.P},
                                                  {"q_decayed", &c.q_decayed},
                                                  {"state", &c.state},
                                                  {"output", &c.output}};
  for (const auto& [field, value] : fields.items()) {
    if (field == "beta_in_T") {
      c.beta_in_T = value.get<bool>();
    } else if (field == "inverse") {
      c.inverse = value == "block16" ? Inverse::block16 : Inverse::neumann;
    } else if (field == "accumulator") {
      c.accumulator = value == "fp32" ? Accumulator::fp32 : Accumulator::tensor_core;
    } else if (field == "exponential") {
      c.exponential = value == "exact" ? Exponential::exact : Exponential::ex2;
    } else if (field == "scan") {
      c.scan = value == "tree" ? Scan::tree : Scan::sequential;
    } else {
      *formats.at(field) = format_of(value.get<std::string>());
    }
  }
  // The prototype knows no format of the inputs: with beta in T it takes v as a number of its operand's.
  if (c.beta_in_T) c.input = c.beta_v;
  return c;
}

Matrix<double> matrix_of(const Tensor& tensor) {
  const auto view = tensor.view<2>();
  Matrix<double> m(view.shape[0], view.shape[1]);
  std::copy(tensor.values.begin(), tensor.values.end(), m.data());
  return m;
}

Vector<double> vector_of(const Tensor& tensor) {
  return Eigen::Map<const Vector<double>>(tensor.values.data(), tensor.size());
}

/// The tokens whose figures are stored: every eighth, the last, and both sides of each chunk's edge.
std::vector<Index> stored_tokens(Index T, Index chunk) {
  std::vector<Index> tokens;
  for (Index t = 0; t < T; ++t) {
    const bool edge = chunk > 1 && (t % chunk == 0 || t % chunk == chunk - 1);
    if (t % 8 == 0 || t == T - 1 || edge) tokens.push_back(t);
  }
  return tokens;
}

struct Case {
  std::string name;
  bool recurrent = false;
  Index chunk = 0, stored_chunk = 0;  ///< as it is evaluated, and as the prototype evaluated it
  Structure structure;
  Contract contract;
  Sequence<double> sequence;

  [[nodiscard]] Bound bound(Mode mode) const {
    return recurrent ? bound_recurrent(sequence, contract, structure, mode, nullptr, 0.0, kDocumented)
                     : bound_chunked(sequence, contract, structure, mode, chunk, nullptr, 0.0, nullptr,
                                     kDocumented);
  }
};

class Prototype : public testing::Test {
 protected:
  Prototype() : file_(read_safetensors(kFolder + "prototype.safetensors")) {
    manifest_ = Json::parse(std::ifstream(kFolder + "manifest.json"));
    std::map<std::string, Structure> structures;
    for (const Json& input : manifest_["inputs"]) {
      structures[input["name"]] = Structure{input["delta"].get<bool>()};
    }
    for (const Json& entry : manifest_["cases"]) {
      Case c{entry["name"],
             entry["form"] == "recurrent",
             entry["chunk"].get<Index>(),
             entry["chunk"].get<Index>(),
             structures.at(entry["input"]),
             contract_of(entry["contract"]),
             {}};
      const std::string input = entry["input"].get<std::string>() + ".";
      Sequence<double>& x = c.sequence;
      x.q = matrix_of(file_.tensor(input + "q"));
      x.k = matrix_of(file_.tensor(input + "k"));
      x.v = matrix_of(file_.tensor(input + "v"));
      x.g = vector_of(file_.tensor(input + "g"));
      x.beta = vector_of(file_.tensor(input + "beta"));
      x.initial_state = matrix_of(file_.tensor(input + "initial_state"));
      x.scale = 1.0 / std::sqrt(static_cast<double>(x.key_width()));
      cases_.push_back(std::move(c));
    }
  }

  /// Largest relative difference between `bound` and the prototype's figures of (case, mode); infinite where
  /// one is vacuous and the other not. Vacuous on both sides agrees.
  [[nodiscard]] double disagreement(const Case& c, std::size_t mode, const Bound& bound) const {
    const Tensor& rows = file_.tensor(c.name + ".rows");
    const Tensor& scalars = file_.tensor(c.name + ".scalars");
    const auto expected = scalars.view<2>();
    if (bound.vacuous != (expected(mode, 2) != 0.0)) return INFINITY;
    if (bound.vacuous) return 0.0;
    double worst = 0.0;
    const auto compare = [&](double actual, double wanted) {
      if (actual != wanted) worst = std::max(worst, std::fabs(actual - wanted) / std::fabs(wanted));
      if (std::isnan(actual) || std::isnan(wanted)) worst = INFINITY;
    };
    const auto row = rows.view<3>();
    const std::vector<Index> tokens = stored_tokens(c.sequence.tokens(), c.stored_chunk);
    if (row.shape[2] != std::ssize(tokens)) return INFINITY;
    const std::array fields = {&bound.before_output, &bound.coherent, &bound.output_rounding, &bound.rms};
    for (std::size_t f = 0; f < fields.size(); ++f) {
      for (std::size_t i = 0; i < tokens.size(); ++i) compare((*fields[f])(tokens[i]), row(mode, f, i));
    }
    compare(std::sqrt(std::max(bound.carry.sigma.trace(), 0.0)), expected(mode, 0));
    compare(std::sqrt(std::max(bound.carry.coherent.trace(), 0.0)), expected(mode, 1));
    // The prototype does not count intermediate sums of an inverse by doubling (largest_of_inverse).
    if (c.contract.inverse != Inverse::neumann) {
      compare(bound.largest, expected(mode, 3));
    } else if (bound.largest < expected(mode, 3) * (1.0 - kAgreement)) {
      return INFINITY;
    }
    compare(bound.nonlinearity, expected(mode, 4));
    return worst;
  }

  Safetensors file_;
  Json manifest_;
  std::vector<Case> cases_;
};

TEST_F(Prototype, AgreesOnEveryCaseAndMode) {
  ASSERT_GE(cases_.size(), 150U);
  int judged = 0;
  for (const Case& c : cases_) {
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      const Bound bound = c.bound(kModes[mode]);
      judged += bound.vacuous ? 0 : 1;
      EXPECT_LE(disagreement(c, mode, bound), kAgreement) << c.name << " mode " << mode;
    }
  }
  EXPECT_GT(judged, 400);
}

/// A finer or coarser format than the one given, where a rounding point exists.
Format other_than(Format format) { return format == Format::bf16 ? Format::fp16 : Format::bf16; }

TEST_F(Prototype, BitesOnEveryContractField) {
  using Change = std::function<void(Contract&)>;
  const std::map<std::string, Change> changes = {
      {"qk", [](Contract& c) { c.qk = other_than(c.qk); }},
      {"beta_k", [](Contract& c) { c.beta_k = other_than(c.beta_k); }},
      {"A", [](Contract& c) { c.A = other_than(c.A); }},
      {"inverse",
       [](Contract& c) {
         c.inverse = Inverse::neumann;
         c.inverse_operand = Format::bf16;
       }},
      {"T", [](Contract& c) { c.T = other_than(c.T); }},
      {"beta_v", [](Contract& c) { c.beta_v = other_than(c.beta_v); }},
      {"beta_exp_k", [](Contract& c) { c.beta_exp_k = other_than(c.beta_exp_k); }},
      {"beta_in_T", [](Contract& c) { c.beta_in_T = !c.beta_in_T; }},
      {"U", [](Contract& c) { c.U = other_than(c.U); }},
      {"W", [](Contract& c) { c.W = other_than(c.W); }},
      {"state_operand", [](Contract& c) { c.state_operand = other_than(c.state_operand); }},
      {"v_new", [](Contract& c) { c.v_new = other_than(c.v_new); }},
      {"v_decayed", [](Contract& c) { c.v_decayed = other_than(c.v_decayed); }},
      {"k_decayed", [](Contract& c) { c.k_decayed = other_than(c.k_decayed); }},
      {"P", [](Contract& c) { c.P = other_than(c.P); }},
      {"q_decayed", [](Contract& c) { c.q_decayed = other_than(c.q_decayed); }},
      {"state", [](Contract& c) { c.state = other_than(c.state); }},
      {"output", [](Contract& c) { c.output = other_than(c.output); }},
      {"accumulator", [](Contract& c) { c.accumulator = Accumulator::fp32; }},
      {"exponential", [](Contract& c) { c.exponential = Exponential::exact; }},
  };
  const auto bites = [&](const std::string& name, const std::map<std::string, Change>& edits) {
    const auto found =
        std::find_if(cases_.begin(), cases_.end(), [&](const Case& c) { return c.name == name; });
    ASSERT_NE(found, cases_.end()) << name;
    for (const auto& [field, edit] : edits) {
      Case changed = *found;
      edit(changed.contract);
      for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
        EXPECT_GT(disagreement(changed, mode, changed.bound(kModes[mode])), 1e-6)
            << name << ' ' << field << ' ' << mode;
      }
    }
  };
  bites("normal.chunked.bf16.64", changes);
  bites("normal.recurrent.bf16_state",
        {{"state", changes.at("state")}, {"output", changes.at("output")}, {"qk", changes.at("qk")}});
  bites("normal.recurrent.fp32_ex2",
        {{"accumulator", changes.at("accumulator")}, {"exponential", changes.at("exponential")}});
  // The scan matters in det only: the statistical modes take the worse order whatever the contract says.
  const auto tree = std::find_if(cases_.begin(), cases_.end(),
                                 [](const Case& c) { return c.name == "normal.chunked.fp32_tree.16"; });
  ASSERT_NE(tree, cases_.end());
  Case sequential = *tree;
  sequential.contract.scan = Scan::sequential;
  EXPECT_GT(disagreement(sequential, 0, sequential.bound(Mode::det)), 1e-6);
}

TEST_F(Prototype, BitesOnStructureChunkAndMode) {
  Case c = cases_.front();
  const Bound det = c.bound(Mode::det);
  EXPECT_LE(disagreement(c, 0, det), kAgreement);
  EXPECT_GT(disagreement(c, 1, det), 1e-6);
  c.chunk /= 2;
  EXPECT_GT(disagreement(c, 0, c.bound(Mode::det)), 1e-6);
  c.chunk *= 2;
  c.structure.delta = false;
  EXPECT_GT(disagreement(c, 0, c.bound(Mode::det)), 1e-6);
}

// A trajectory that the reference has already computed may be passed in; the bound is the same.
TEST_F(Prototype, TrajectoryOfTheReferenceGivesTheSameBound) {
  for (const Case& c : cases_) {
    if (c.recurrent) continue;
    const Trajectory<double> found =
        c.structure.delta ? recurrent<GatedDeltaRule>(c.sequence) : recurrent<Retention>(c.sequence);
    const Bound bound = bound_chunked(c.sequence, c.contract, c.structure, Mode::prob, c.chunk, nullptr, 0.0,
                                      &found, kDocumented);
    EXPECT_LE(disagreement(c, 1, bound), kAgreement) << c.name;
  }
}

}  // namespace
}  // namespace samestate
