#include "oracles/proofs/goldens/goldens.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "fixtures/safetensors.h"
#include "reference/error.h"

namespace samestate {
namespace {
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SAMESTATE_SOURCE_DIR) / "fixtures" / "golden";

/// A folder without manifest that holds the groups of one golden, changed.
class GoldensTest : public testing::Test {
 protected:
  GoldensTest() {
    fs::create_directories(folder_);
    const Safetensors file = read_safetensors(kGoldens / "fla_naive.safetensors");
    for (const std::string& name : file.names()) tensors_[name] = file.tensor(name);
  }
  ~GoldensTest() override { fs::remove_all(folder_); }

  [[nodiscard]] GoldenReport check() const {
    std::vector<Tensor> all;
    for (const auto& [name, tensor] : tensors_) {
      all.push_back(tensor);
      all.back().name = name;
    }
    write_safetensors(folder_ / "mine.safetensors", all);
    return check_goldens(folder_);
  }
  [[nodiscard]] std::string error() const {
    try {
      (void)check();
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }
  void keep(const std::string& group) {
    std::erase_if(tensors_, [&](const auto& entry) { return !entry.first.starts_with(group + "/"); });
  }
  /// The largest value of a tensor.
  double& largest(const std::string& name) {
    std::vector<double>& x = tensors_.at(name).values;
    return *std::max_element(x.begin(), x.end(),
                             [](double a, double b) { return std::abs(a) < std::abs(b); });
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("goldens_test." + std::to_string(::getpid()));
  std::map<std::string, Tensor> tensors_;
};

/// The one check of a group that is not a float64 evaluation: the weights of the golden's float32 router.
bool of_float32_router(const GoldenCheck& check) {
  return check.group == "moe_block" && check.form.find("float32") != std::string::npos;
}

TEST(Goldens, OfThisRepositoryPass) {
  const GoldenReport report = check_goldens(kGoldens);
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.unknown, std::vector<std::string>{});
  std::set<std::string> groups, recurrent_forms;
  int routers = 0;
  for (const GoldenCheck& check : report.checks) {
    EXPECT_TRUE(check.passed) << check.group << " " << check.tensor << " " << check.form << " "
                              << check.relative_error;
    groups.insert(check.group);
    if (check.file == "fla_naive.safetensors") recurrent_forms.insert(check.form);
    if (of_float32_router(check)) {
      ++routers;
      EXPECT_LT(check.limit, 1e-5);
      EXPECT_GT(check.relative_error, kGoldenLimit);  // else the check were an ordinary one
      continue;
    }
    // In chunks the gradients of gates are differences of larger sums.
    const bool of_gates = check.tensor == "d.w.A_log" || check.tensor == "d.w.dt_bias" ||
                          check.tensor == "d.w.in_proj_ba.weight";
    const bool cancels = of_gates && check.form.starts_with("chunked");
    EXPECT_LE(check.relative_error, cancels ? kGoldenLimit : 1e-14) << check.group << " " << check.tensor;
    EXPECT_EQ(check.limit, kGoldenLimit);
  }
  EXPECT_EQ(routers, 1);
  // The gradients of all of them but the two largest groups, and of one that adds nothing.
  std::set<std::string> gradients;
  for (const std::string& group : groups) {
    if (group.ends_with(".backward"))
      gradients.insert(group.substr(0, group.size() - std::string(".backward").size()));
  }
  std::erase_if(groups, [](const std::string& group) { return group.ends_with(".backward"); });
  std::set<std::string> differentiated = groups;
  for (const char* left_out : {"gdn_qwen", "gdn_strong", "gdn_onechunk"}) differentiated.erase(left_out);
  EXPECT_EQ(gradients, differentiated);
  EXPECT_EQ(groups, (std::set<std::string>{"delta_rule", "gated_attention", "gated_rmsnorm", "gdn_layer",
                                           "gdn_nonorm", "gdn_onechunk", "gdn_qwen", "gdn_small",
                                           "gdn_strong", "gdn_t1", "gdn_tail1", "linear_attention",
                                           "mamba2_mixer", "mamba_mixer", "mla", "moe_block", "retention",
                                           "scalar_gated", "zero_centered_rmsnorm"}));
  EXPECT_EQ(recurrent_forms.size(), 4U);
}

TEST_F(GoldensTest, UnchangedCopyPasses) { EXPECT_TRUE(check().passed()); }

TEST_F(GoldensTest, OneOutputChangedBy1e9Fails) {
  for (const char* name : {"delta_rule/out", "delta_rule/state", "retention/out", "scalar_gated/out",
                           "linear_attention/state"}) {
    double& x = largest(name);
    const double old = x;
    x *= 1 + 1e-9;
    const GoldenReport report = check();
    EXPECT_FALSE(report.passed()) << name;
    for (const GoldenCheck& check : report.checks) {
      const bool this_one = check.group + "/" + check.tensor == name;
      EXPECT_EQ(check.passed, !this_one) << check.group << "/" << check.tensor;
      EXPECT_NEAR(check.relative_error, this_one ? 1e-9 : 0.0, 1e-12);
    }
    x = old;
  }
}

TEST_F(GoldensTest, OneInputChangedFails) {
  for (const char* name : {"delta_rule/beta", "scalar_gated/g", "retention/k", "linear_attention/q"}) {
    double& x = largest(name);
    const double old = x;
    x = static_cast<double>(static_cast<float>(old * (1 + 1e-6)));  // inputs are kept in fp32
    EXPECT_FALSE(check().passed()) << name;
    x = old;
  }
}

TEST_F(GoldensTest, ValuesThatAreNotFiniteFail) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (std::size_t at :
         {std::size_t{0}, std::size_t{17}, tensors_.at("delta_rule/out").values.size() - 1}) {
      double& x = tensors_.at("delta_rule/out").values[at];
      const double old = x;
      x = bad;
      EXPECT_FALSE(check().passed()) << bad << " at " << at;
      x = old;
    }
  }
}

TEST_F(GoldensTest, UnknownGroupsAreNamedAndAloneAreNoPass) {
  tensors_["rope/out"] = {"rope/out", DType::f64, {1}, {1.0}};
  GoldenReport report = check();
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.unknown, std::vector<std::string>{"mine.safetensors: rope"});
  keep("rope");
  report = check();
  EXPECT_TRUE(report.checks.empty());
  EXPECT_FALSE(report.passed());
}

TEST_F(GoldensTest, MissingTensorIsAnError) {
  keep("delta_rule");
  const auto all = tensors_;
  for (const char* name : {"q", "k", "v", "beta"}) {
    tensors_ = all;
    tensors_.erase(std::string("delta_rule/") + name);
    EXPECT_NE(error().find(name), std::string::npos) << name << ": " << error();
  }
  tensors_ = all;
  tensors_.erase("delta_rule/out"), tensors_.erase("delta_rule/state");
  EXPECT_NE(error().find("no output"), std::string::npos) << error();
}

TEST_F(GoldensTest, WrongShapeIsAnError) {
  keep("delta_rule");
  const auto all = tensors_;
  for (const auto& [name, original] : all) {
    // Half of the heads, half of the batch, one token less, flat.
    for (int change = 0; change < 4; ++change) {
      tensors_ = all;
      Tensor& t = tensors_.at(name);
      const bool state = name.ends_with("state");
      if (change == 0) t.shape[state ? 1 : 2] /= 2;
      if (change == 1) t.shape[0] /= 2;
      if (change == 2) t.shape[state ? 2 : 1] -= 1;
      if (change == 3) t.shape = {t.size()};
      std::int64_t size = 1;
      for (std::int64_t extent : t.shape) size *= extent;
      t.values.resize(static_cast<std::size_t>(size));
      EXPECT_NE(error(), "") << name << ", change " << change;
    }
  }
}

/// The file of gradients with those of the forward groups that it refers to, of which one tensor can be changed.
class GradientGoldens : public GoldensTest {
 protected:
  GradientGoldens() {
    for (const char* name :
         {"gradients", "hf_norms", "hf_qwen3_next_gdn_layer", "hf_qwen3_next_moe", "hf_mamba", "hf_mamba2",
          "hf_deepseek_v3_mla", "hf_qwen3_next_gated_attention"}) {
      const Safetensors file = read_safetensors(kGoldens / (std::string(name) + ".safetensors"));
      for (const std::string& tensor : file.names()) tensors_[tensor] = file.tensor(tensor);
    }
    std::erase_if(tensors_, [](const auto& entry) {
      return entry.first.starts_with("gdn_") && !is_layer(entry.first);
    });
  }
  static bool is_layer(const std::string& name) { return name.starts_with("gdn_layer"); }
};

TEST_F(GradientGoldens, OneGradientChangedBy1e9FailsAlone) {
  int changed = 0;
  for (const auto& entry : tensors_) {
    const std::string& name = entry.first;
    const std::size_t slash = name.find(".backward/d.");
    // One tensor of each group, and all those of two.
    const bool cotangent = name.ends_with("out") || name.ends_with("d.state");
    if (slash == std::string::npos || cotangent ||
        (!name.starts_with("delta_rule.") && !name.starts_with("mla.") && !name.ends_with("_in") &&
         !name.ends_with("d.x")))
      continue;
    double& x = largest(name);
    const double old = x;
    x *= 1 + 1e-9;
    const GoldenReport report = check();
    EXPECT_FALSE(report.passed()) << name;
    for (const GoldenCheck& check : report.checks)
      EXPECT_EQ(check.passed, check.group + "/" + check.tensor != name) << check.group << "/" << check.tensor;
    x = old;
    ++changed;
  }
  EXPECT_GE(changed, 15);
}

TEST_F(GradientGoldens, ACotangentOrAnInputChangedFails) {
  for (const char* name :
       {"delta_rule.backward/d.out", "delta_rule.backward/d.state", "retention.backward/d.out",
        "mla.backward/d.hidden_out", "gdn_layer/w.A_log", "mamba_mixer/w.x_proj.weight"}) {
    double& x = largest(name);
    const double old = x;
    x = static_cast<double>(static_cast<float>(old * (1 + 1e-6)));
    const GoldenReport report = check();
    const std::string_view of(name);
    EXPECT_TRUE(std::ranges::any_of(report.checks, [&](const GoldenCheck& c) {
      return !c.passed && c.group.ends_with(".backward") &&
             c.group.starts_with(of.substr(0, of.find_first_of("./")));
    })) << name;
    x = old;
  }
}

TEST_F(GradientGoldens, WhatIsMissingOrMisshapenIsAnError) {
  const auto all = tensors_;
  for (const char* name :
       {"delta_rule.backward/d.out", "delta_rule.backward/d.q", "delta_rule.backward/d.beta",
        "mla.backward/d.hidden_out", "mla.backward/d.w.o_proj.weight"}) {
    tensors_ = all;
    tensors_.erase(name);
    EXPECT_NE(error().find(std::string(name).substr(std::string(name).find('/') + 1)), std::string::npos)
        << name;
    tensors_ = all;
    Tensor& t = tensors_.at(name);
    t.shape = {t.size()};
    if (!std::string_view(name).ends_with("weight")) {
      EXPECT_NE(error(), "") << name;
    }
    t.values.pop_back(), --t.shape[0];
    EXPECT_NE(error(), "") << name;
  }
  tensors_ = all;
  std::erase_if(tensors_, [](const auto& entry) { return entry.first.starts_with("mla/"); });
  EXPECT_NE(error().find("group mla, which is in no file"), std::string::npos) << error();
}

TEST(Goldens, FolderThatCannotBeReadIsAnError) {
  EXPECT_THROW((void)check_goldens("no/such/folder"), Error);
  const fs::path empty = fs::path(testing::TempDir()) / ("goldens_empty." + std::to_string(::getpid()));
  fs::create_directories(empty);
  EXPECT_THROW((void)check_goldens(empty), Error);
  fs::remove_all(empty);
}

}  // namespace
}  // namespace samestate
