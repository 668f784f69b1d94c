#include "harness/captured/captured_heads.h"

#include <fmt/format.h>

#include <map>
#include <numbers>

#include "harness/systems/saved_run.h"
#include "tests/facts.h"
#include "tests/harness/captured/captured_folder.h"

namespace samestate {
namespace {

constexpr const char* kLine = "v1 gated_delta_rule chunk=16 T=33 B=2 Hk=2 Hv=4 dk=16 dv=8 state=random";

std::string unlike(const CapturedFolderOfCase& made, const CapturedWords& words = {}) {
  const CapturedFolder folder = made.write();
  try {
    const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), words);
    return {};
  } catch (const CapturedMismatch& error) {
    return error.what();
  }
}

TEST(CapturedHeads, ReadsWhatTheOraclesRead) {
  CapturedFolderOfCase made(kLine);
  const CapturedFolder folder = made.write();
  const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
  const CapturedHeads heads(run);
  EXPECT_EQ(format_case(run.resolved().c), format_case(made.r.c));
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t h = 0; h < 4; ++h) {
      const Sequence<double> a = heads.sequence(n, h), b = sequence_of(made.batch, n, h);
      EXPECT_EQ(a.q, b.q);
      EXPECT_EQ(a.k, b.k);
      EXPECT_EQ(a.v, b.v);
      EXPECT_EQ(a.g, b.g);
      EXPECT_EQ(a.beta, b.beta);
      EXPECT_EQ(a.scale, b.scale);
      EXPECT_EQ(a.initial_state, b.initial_state);
      EXPECT_EQ(heads.rows(n, h), rows_of(made.batch, made.outputs, n, h));
      EXPECT_EQ(heads.state(n, h), state_of(made.batch, made.outputs, n, h));
    }
  }
}

/// Decays as factors, as logarithms to the base 2 and before their gate, and strengths before their sigmoid, are read as the
/// numbers that the kernel was given stand for, in float64.
TEST(CapturedHeads, ConventionsAreReadInFloat64) {
  for (const std::string decay : {"linear", "log2", "raw"}) {
    CapturedFolderOfCase made(kLine);
    std::vector<double> given;
    for (const float g : made.batch.g)
      given.push_back(static_cast<double>(static_cast<float>(decay == "linear" ? std::exp(g)
                                                             : decay == "log2" ? g / std::numbers::ln2
                                                                               : std::log(std::expm1(-g)))));
    made.tensors["argument.g"].values = given;
    for (double& beta : made.tensors["argument.beta"].values)
      beta = static_cast<double>(static_cast<float>(std::log(beta / (1 - beta))));
    made.declaration.insert(made.declaration.size() - 1,
                            fmt::format(R"(,"conventions":{{"decay":"{}","beta":"logit"}})", decay));
    const CapturedFolder folder = made.write();
    const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
    const CapturedHeads heads(run);
    const Sequence<double> x = heads.sequence(1, 3);
    for (Index t = 0; t < 33; ++t) {
      const double g = given[static_cast<std::size_t>((33 + t) * 4 + 3)];
      const double meant = decay == "linear" ? std::log(g)
                           : decay == "log2" ? g * std::numbers::ln2
                                             : -std::log1p(std::exp(g));
      EXPECT_DOUBLE_EQ(x.g(t), meant);
      const double b = made.tensors["argument.beta"].values[static_cast<std::size_t>((33 + t) * 4 + 3)];
      EXPECT_DOUBLE_EQ(x.beta(t), 1 / (1 + std::exp(-b)));
    }
  }
}

TEST(CapturedHeads, TheContractIsThatOfTheDtypes) {
  CapturedFolderOfCase made(std::string(kLine) + " contract=bf16", DType::bf16);
  const CapturedFolder folder = made.write();
  const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
  EXPECT_EQ(run.resolved().c.contract, "bf16");
  EXPECT_NE(unlike(made, {.contract = "fp32"}).find("dtypes"), std::string::npos);
  made.tensors["output.0"].dtype = DType::f32;  // wider than the contract's is no difference
  EXPECT_EQ(unlike(made), "");
  made.tensors["output.0"].dtype = DType::bf16;
  made.tensors["argument.v"].dtype = DType::f32;
  EXPECT_NE(unlike(made).find("none of the contracts fp32, bf16"), std::string::npos);
}

// The bounds are of states that do not grow.
TEST(CapturedHeads, AStateThatGrowsIsNotJudged) {
  CapturedFolderOfCase made(kLine);
  made.tensors.at("argument.g").values.back() = 0.5;
  const CapturedFolder folder = made.write();
  const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
  const CapturedHeads heads(run);
  EXPECT_NO_THROW((void)heads.sequence(0, 0));
  try {
    (void)heads.sequence(1, 3);
    ADD_FAILURE() << "a decay above 1 is taken";
  } catch (const CapturedMismatch& error) {
    EXPECT_EQ(lacking(error.what(), "argument.g head 3 at most"), "");
  }
}

TEST(CapturedHeads, WhatIsNotTheDeclarationsCallIsSaid) {
  const auto changed = [](auto&& change) {
    CapturedFolderOfCase made(kLine);
    change(made);
    return unlike(made);
  };
  for (const auto& [said, word] : std::vector<std::pair<std::string, std::string>>{
           {changed([](auto& made) {
              made.tensors["argument.q"].shape = {2, 33, 32};
            }),
            "argument.q"},
           {changed([](auto& made) {
              made.tensors["argument.g"].shape = {2, 4, 33};
            }),
            "argument.g"},
           {changed([](auto& made) {
              made.tensors["output.1"].shape = {2, 4, 8, 16};
            }),
            "final_state"},
           {changed([](auto& made) { made.tensors.erase("output.0"); }), "no result o"},
           {changed([](auto& made) {
              made.tensors["output.0"].shape = {2, 4, 33, 8};
            }),
            "declared layout wrong"},
           {changed([](auto& made) { made.values = R"("reverse":true)"; }), "argument reverse is True"},
           {changed([](auto& made) { made.values = R"("epsilon":0.5,"l2norm":true)"; }), "not an epsilon"},
           {changed([](auto& made) { made.tensors.erase("argument.beta"); }), "no tensor for beta"},
           {changed([](auto& made) {
              made.put("argument.slots", DType::i64, {2}, {0, 1});
            }),
            "slots"},
           {changed([](auto& made) {
              made.put("argument.cu_seqlens", DType::i64, {3}, {0, 9, 33});
            }),
            "for a batch of 2"},
           {changed([](auto& made) { made.values = R"("scale":"large")"; }), "scale"},
           {changed([](auto& made) {
              made.declaration.replace(made.declaration.find("chunk = 16"), 10, "dk <= 8");
            }),
            "--chunk"},
       }) {
    EXPECT_NE(said.find(word), std::string::npos) << word << ": " << said;
  }
}

TEST(CapturedHeads, TheRunFileIsTheCall) {
  const CapturedFolderOfCase made(kLine);
  const CapturedFolder folder = made.write();
  const std::optional<RunFile> run =
      CapturedRun(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {}).run_file();
  ASSERT_TRUE(run.has_value());
  for (const auto& [name, values] : {std::pair{"q", &made.batch.q},
                                     {"v", &made.batch.v},
                                     {"g", &made.batch.g},
                                     {"beta", &made.batch.beta},
                                     {"initial_state", &made.batch.initial_state},
                                     {"o", &made.outputs.o},
                                     {"final_state", &made.outputs.final_state}})
    EXPECT_EQ(run->tensors.at(name).values, std::vector<double>(values->begin(), values->end())) << name;
  EXPECT_EQ(judge_run_file(*run).judgement.verdict, Verdict::pass);
}

/// [.., a, b, inner] of a tensor as [.., b, a, inner].
void exchange(Tensor& x, std::size_t axis) {
  const std::vector<std::int64_t> from = x.shape;
  std::swap(x.shape[axis], x.shape[axis + 1]);
  std::int64_t inner = 1;
  for (std::size_t d = axis + 2; d < from.size(); ++d) inner *= from[d];
  const std::vector<double> values = x.values;
  const std::int64_t a = from[axis], b = from[axis + 1];
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t outer = i / inner / b / a, first = i / inner / b % a, second = i / inner % b;
    x.values[static_cast<std::size_t>(((outer * b + second) * a + first) * inner + i % inner)] =
        values[static_cast<std::size_t>(i)];
  }
}

/// Whatever the layout of the call, its run file has the system's.
TEST(CapturedHeads, TheRunFileHasTheSystemsLayout) {
  CapturedFolderOfCase made(kLine);
  const std::map<std::string, Tensor> canonical = made.tensors;
  for (auto& [name, tensor] : made.tensors)
    exchange(tensor, name == "argument.initial_state" || name == "output.1" ? 2 : 1);
  made.declaration.insert(made.declaration.size() - 1, R"(,"conventions":{"layout":"BHTD","state":"vk"})");
  const CapturedFolder folder = made.write();
  const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
  EXPECT_EQ(format_case(run.resolved().c), format_case(made.r.c));
  const std::optional<RunFile> file = run.run_file();
  ASSERT_TRUE(file.has_value());
  for (const auto& [ours, theirs] :
       std::map<std::string, std::string>{{"q", "argument.q"},
                                          {"beta", "argument.beta"},
                                          {"initial_state", "argument.initial_state"},
                                          {"o", "output.0"},
                                          {"final_state", "output.1"}}) {
    EXPECT_EQ(file->tensors.at(ours).shape, canonical.at(theirs).shape) << ours;
    EXPECT_EQ(file->tensors.at(ours).values, canonical.at(theirs).values) << ours;
  }
  EXPECT_EQ(judge_run_file(*file).judgement.verdict, Verdict::pass);
}

/// Packed tokens that belong to no sequence are left out of the run.
TEST(CapturedHeads, ThePackedRunHasTheTokensOfItsSequences) {
  CapturedFolderOfCase made("v1 gated_delta_rule chunk=16 T=33 Hk=2 Hv=4 dk=16 dv=8");
  made.tensors.erase("output.1");
  made.put("argument.cu_seqlens", DType::i64, {3}, {2, 20, 30});
  const CapturedFolder folder = made.write();
  const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
  EXPECT_EQ(lacking(format_case(run.resolved().c), "form=packed lengths=18,10 unowned=2,3"), "")
      << format_case(run.resolved().c);
  EXPECT_FALSE(run.run_file().has_value()) << "without a final state it is no run";
  made.put("output.1", DType::f32, {2, 4, 16, 8}, std::vector<float>(std::size_t{2} * 4 * 16 * 8, 0.25F));
  const CapturedFolder whole = made.write();
  const std::optional<RunFile> file =
      CapturedRun(made.folder, whole.calls.at(0), whole.functions.at("m:f"), {}).run_file();
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->tensors.at("cu_seqlens").values, (std::vector<double>{0, 18, 28}));
  const std::vector<double>&all = made.tensors.at("argument.v").values, &own = file->tensors.at("v").values;
  EXPECT_EQ(own, std::vector<double>(all.begin() + 2 * 32, all.begin() + 30 * 32));
}

TEST(CapturedHeads, AnEpsilonOfTheCallIsRead) {
  CapturedFolderOfCase made(kLine);
  const auto epsilon = [&] {
    const CapturedFolder folder = made.write();
    return CapturedRun(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {}).given().norm_epsilon;
  };
  made.values = R"("eps":0.001,"l2norm":true)";
  EXPECT_EQ(epsilon(), 0.001);
  made.values = R"("l2norm":true)";
  EXPECT_EQ(epsilon(), 1e-6);
}

TEST(CapturedHeads, WhatTheManifestAndTheFileSayIsTheSame) {
  CapturedFolderOfCase made(kLine);
  CapturedFolder folder = made.write();
  const auto complaint = [&] {
    try {
      const CapturedRun run(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(complaint(), "");
  folder.calls[0].tensors["argument.q"].shape[0] = 1;
  EXPECT_NE(complaint().find("call-1-00001.safetensors"), std::string::npos);
  folder.calls[0].tensors.erase("argument.q");
  EXPECT_NE(complaint().find("does not name its tensor"), std::string::npos);
  folder = made.write();
  folder.calls[0].tensors["argument.other"] = folder.calls[0].tensors["argument.q"];
  EXPECT_NE(complaint().find("argument.other"), std::string::npos);
}

}  // namespace
}  // namespace samestate
