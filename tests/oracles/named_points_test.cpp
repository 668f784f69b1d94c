#include "oracles/named_points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/systems/system_points.h"
#include "reference/error.h"
#include "tests/facts.h"
#include "tests/oracles/contract_error.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

TEST(NamedPoints, AreUniqueAndSayWhatTheyAre) {
  std::set<std::string> names;
  for (const Point& point : named_points()) {
    EXPECT_TRUE(names.insert(point.name()).second) << point.name() << " twice";
    EXPECT_TRUE(std::regex_match(point.name(), std::regex("[a-z0-9_]+(\\.[a-z_]+)?\\.[A-Za-z_]+")))
        << point.name();
    EXPECT_TRUE(point.row().means.size() >= 4 && point.row().means.ends_with('.')) << point.name();
    EXPECT_EQ(point_named(point.name()), point);
  }
  EXPECT_GE(names.size(), 130U);
  for (const Point& point : named_points()) {
    if (point.row().of.empty()) continue;
    const std::optional<Point> of = point_named(point.row().of);
    ASSERT_TRUE(of.has_value()) << point.name() << " is of " << point.row().of;
    EXPECT_TRUE(of->row().of.empty()) << point.name() << ": one step";
  }
}

// A table that is missing from the list would have points that no contract can switch.
TEST(NamedPoints, EveryTableOfTheTreeIsListed) {
  std::set<std::string> declared, listed;
  for (const char* room : {"reference", "oracles"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(SAMESTATE_SOURCE_DIR) / room)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      static const std::regex table("constexpr PointTable [a-z0-9_]+\\{\\s*\"([a-z0-9_.]+)\"");
      for (std::sregex_iterator it(text.begin(), text.end(), table), end; it != end; ++it)
        declared.insert((*it)[1]);
    }
  }
  for (const PointTable* table : point_tables()) listed.insert(std::string(table->name));
  EXPECT_EQ(listed.size(), point_tables().size()) << "a name twice";
  EXPECT_EQ(declared, listed);
}

TEST(NamedPoints, ASystemHasThoseThatItsFormsMeet) {
  const auto names = [](std::string_view system) {
    std::string out;
    for (const Point& point : points_of(*find_operator(system))) out += point.name() + " ";
    return out;
  };
  EXPECT_EQ(names("softmax_attention"),
            "online_softmax.weighed_values online_softmax.weights softmax_attention.scores "
            "softmax_attention.weighed_values softmax_attention.weights_of_tile "
            "softmax_attention.weights_undivided softmax_attention.weights ");
  EXPECT_EQ(names("rms_norm"), "");
  const std::vector<std::string_view> with = systems_of(require_point("short_convolution.state"));
  EXPECT_GE(with.size(), 4U);
  EXPECT_NE(std::ranges::find(with, "mamba2_mixer"), with.end());
  // A part that the standard sizes do not have.
  EXPECT_NE(names("latent_attention").find("latent_attention.q_down"), std::string::npos);
}

TEST(NamedPoints, AContractSwitchesOneByItsName) {
  const Contract& switched = contract_named("bf16+softmax_attention.weights:fp32+beta_k:bf16");
  EXPECT_EQ(switched.name, "bf16+beta_k:bf16+softmax_attention.weights:fp32");
  EXPECT_EQ(contract_named(switched.name).name, switched.name);
  EXPECT_EQ(contract_named("bf16+softmax_attention.weights:bf16").name, "bf16") << "as it is";
  EXPECT_FALSE(same_points(contract_named("bf16"), contract_named("bf16+softmax_attention.weights:fp32")));
  EXPECT_EQ(switched_by(contract_named("bf16")), nullptr);
  // With the same point in other orders of evaluation.
  const SkippedPoints* set = switched_by(contract_named("bf16+softmax_attention.weights:fp32"));
  ASSERT_NE(set, nullptr);
  for (const char* name : {"softmax_attention.weights", "softmax_attention.weights_undivided",
                           "softmax_attention.weights_of_tile", "online_softmax.weights"})
    EXPECT_TRUE(set->has(require_point(name))) << name;
  EXPECT_EQ(set->points.size(), 4U);
  // Kernels keep some points in fp32, and a contract has to name one to round there.
  const Contract& named = contract_named("bf16+chunk_backward.dG:bf16");
  EXPECT_EQ(named.name, "bf16+chunk_backward.dG:bf16");
  EXPECT_EQ(contract_named("bf16+chunk_backward.dG:fp32").name, "bf16") << "as it is";
  const Point dG = require_point("chunk_backward.dG");
  EXPECT_FALSE(contract_rounds_at(dG, switched_by(contract_named("bf16"))));
  EXPECT_TRUE(contract_rounds_at(dG, switched_by(named)));
  EXPECT_TRUE(contract_rounds_at(require_point("chunk_backward.dw"), switched_by(named)));
  EXPECT_EQ(contract_of(named).name, named.name);
  // A change elsewhere keeps it, and takes it away with the format that it switches.
  EXPECT_EQ(nearest_card("bf16+softmax_attention.weights:fp32"),
            "bf16+card:nearest+softmax_attention.weights:fp32");
  Contract plain = switched;
  plain.input = plain.output = Format::fp32;
  EXPECT_EQ(contract_of(plain).name.find("softmax_attention"), std::string::npos);
  EXPECT_EQ(contract_named("tf32+softmax_attention.scores:fp32").name, "tf32+softmax_attention.scores:fp32");
}

TEST(NamedPoints, ErrorsNameTheValueWhatIsAllowedAndTheNearest) {
  EXPECT_EQ(
      lacking(contract_error("bf16+softmax_attention.weigts:fp32"), "nearest: softmax_attention.weights"),
      "");
  EXPECT_NE(contract_error("bf16+weighed_values:fp32").find("softmax_attention.weighed_values"),
            std::string::npos);
  EXPECT_NE(contract_error("bf16+softmax_attention.weights:fp16").find("takes fp32"), std::string::npos);
  EXPECT_EQ(lacking(contract_error("fp32+softmax_attention.weights:fp32"), "contract bf16"), "");
  EXPECT_EQ(lacking(contract_error("bf16+softmax_attention.scores:fp32"), "contract tf32"), "");
  EXPECT_NE(contract_error("bf16+softmax_attention.weights:fp32+softmax_attention.weights:bf16")
                .find("changed twice"),
            std::string::npos);
}

// Takes each point of a layer in turn: a kernel that stores there although the contract says fp32 does not
// keep the contract, and passes without that promise. A kernel that keeps fp32 there passes under both.
TEST(NamedPoints, AKernelThatStoresWhereTheContractDoesNotFails) {
  struct Row {
    const char *system, *form, *under;
  };
  const Row rows[] = {{"softmax_attention", "naive", "bf16"},
                      {"softmax_attention", "online", "bf16"},
                      {"gated_attention", "online", "bf16"},
                      {"softmax_attention", "online", "tf32"},
                      {"latent_attention", "absorbed", "bf16"}};
  int switches = 0;
  std::string unseen;
  for (const Row& row : rows) {
    const DrawnSubject plain(row.system, row.form, 13, {}, row.under, 5);
    SkippedPoints met;
    (void)twin_values(plain.subject(), {}, &met);
    ASSERT_FALSE(met.points.empty());
    for (const Point& point : met.points) {
      const std::string name(point.row().of.empty() ? point.name() : std::string(point.row().of));
      const std::string under = std::string(row.under) + "+" + name + ":fp32";
      const DrawnSubject subject(row.system, row.form, 13, {}, under.c_str(), 5);
      const Tensors<double> stores = drawn_kernel(plain), keeps = drawn_kernel(subject);
      const std::string of = std::string(row.system) + " " + row.form + " " + under;
      const auto verdict = [](const DrawnSubject& s, const Tensors<double>& kernel) {
        return judge_operator_twin(s.subject(), kernel, 7, kGatePolicy).judgement.verdict;
      };
      EXPECT_EQ(verdict(plain, stores), Verdict::pass) << of;
      EXPECT_EQ(verdict(plain, keeps), Verdict::pass) << of;
      EXPECT_EQ(verdict(subject, keeps), Verdict::pass) << of;
      ++switches;
      if (verdict(subject, stores) == Verdict::fail) continue;
      unseen += point.name() + " ";
    }
  }
  EXPECT_GE(switches, 20);
  EXPECT_EQ(unseen, "gated_attention.o_proj latent_attention.o_proj ")
      << "of what is written as an output of 16 bit all the same";
}

}  // namespace
}  // namespace samestate
