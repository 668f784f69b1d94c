// Agreement with the numpy prototype on fixtures/bounds (made by make_prototype.py, described in its
// manifest).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fixtures/safetensors.h"
#include "oracles/bounds/chunked.h"
#include "oracles/bounds/recurrent.h"

namespace samestate {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(SAMESTATE_SOURCE_DIR) + "/fixtures/bounds/";
constexpr std::array kModes = {Mode::det, Mode::prob, Mode::semi};  // the order of the manifest

/// Both sides compute the same formulas in float64, in another order: Eigen's blocked products and a
/// triangular solve against BLAS and LU. That leaves up to 1e3 roundings, 1e-13. Where the propagator
/// contracts the error to nothing (b k^T k near 1) or T is nearly singular, cancellation multiplies that,
/// below 1e-10 on these inputs.
constexpr double kAgreement = 1e-12;

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

struct Case {
  std::string name;
  bool recurrent = false;
  Index chunk = 0;
  Structure structure;
  Contract contract;
  Sequence<double> sequence;

  [[nodiscard]] Bound bound(Mode mode) const {
    return recurrent ? bound_recurrent(sequence, contract, structure, mode)
                     : bound_chunked(sequence, contract, structure, mode, chunk);
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
    const std::array fields = {&bound.before_output, &bound.coherent, &bound.output_rounding, &bound.rms};
    for (std::size_t f = 0; f < fields.size(); ++f) {
      for (Index t = 0; t < fields[f]->size(); ++t) compare((*fields[f])(t), row(mode, f, t));
    }
    compare(std::sqrt(std::max(bound.carry.sigma.trace(), 0.0)), expected(mode, 0));
    compare(std::sqrt(std::max(bound.carry.coherent.trace(), 0.0)), expected(mode, 1));
    compare(bound.largest, expected(mode, 3));
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

}  // namespace
}  // namespace samestate
