#include "harness/systems/saved_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "harness/explain/explain.h"
#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {
namespace fs = std::filesystem;

struct Dumped {
  Record record;
  RunFile file;
};

Dumped dump(const std::string& line) {
  Trace trace;
  Dumped out;
  const KernelTable table(kernels(), operator_kernels());
  out.record = run_case(parse_case(line), table, 1, &trace);
  out.file = run_file_of(out.record, trace);
  return out;
}

std::string complaint(const RunFile& file) {
  try {
    (void)judge_run_file(file);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

constexpr const char* kSavedLine =
    "v1 gated_delta_rule chunk=16 T=33 B=2 Hk=2 Hv=4 dk=16 dv=8 contract=bf16 state=random";

TEST(Exchange, DumpAndJudgeGiveTheSameRatio) {
  for (const char* line :
       {kSavedLine, "v1 gated_delta_rule form=recurrent T=9 dk=8 dv=4",
        "v1 delta_rule chunk=16 T=40 dk=16 l2norm=1 layout=padded",
        "v1 retention form=parallel T=20 dk=8 regime=slow",
        "v1 linear_attention form=decode chunk=8 T=20 prefill=10 dk=8",
        "v1 gated_delta_rule form=packed chunk=8 lengths=3,0,14 dk=8 state=random",
        "v1 delta_rule T=20 chunk=8 dk=8 regime=exact", "v1 gated_delta_rule T=130 dk=32 dv=40 contract=bf16",
        "v1 retention T=20 dk=8 Hk=2 Hv=4 heads=tiled scale=0.5"}) {
    const Dumped dumped = dump(line);
    const fs::path path =
        fs::path(testing::TempDir()) / ("exchange_test." + std::to_string(::getpid()) + ".safetensors");
    write_run_file(path, dumped.file, named_shapes);
    const Record judged = judge_run_file(read_run_file(path, named_shapes));
    fs::remove(path);
    const Judgement& a = dumped.record.judgement;
    const Judgement& b = judged.judgement;
    EXPECT_EQ(a.verdict, Verdict::pass) << line << ": " << a.reason;
    EXPECT_EQ(b.verdict, a.verdict) << line << ": " << b.reason;
    EXPECT_EQ(b.ratio, a.ratio) << line;
    EXPECT_EQ(b.twin_ratio, a.twin_ratio) << line;
    EXPECT_EQ(b.rows, a.rows) << line;
    EXPECT_EQ(judged.line, dumped.record.line);
    EXPECT_EQ(judged.kernel, dumped.record.kernel);
  }
}

// Data are the file's: the seed that the line names is not read.
TEST(Exchange, JudgesTheTensorsNotTheSeed) {
  Dumped dumped = dump(kSavedLine);
  dumped.file.case_line += " seed=77";
  EXPECT_EQ(judge_run_file(dumped.file).judgement.ratio, dumped.record.judgement.ratio);
}

TEST(Exchange, TamperedOutputsFail) {
  const Dumped dumped = dump(kSavedLine);
  for (const char* name : {"o", "final_state"}) {
    for (double factor :
         {1.5, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      RunFile file = dumped.file;
      double& x = file.tensors.at(name).values[100];
      x = static_cast<double>(static_cast<float>(std::isfinite(factor) ? x * factor + factor : factor));
      EXPECT_EQ(judge_run_file(file).judgement.verdict, Verdict::fail) << name << " x " << factor;
    }
  }
  RunFile file = dumped.file;
  double& g = file.tensors.at("g").values[40];
  g = static_cast<double>(static_cast<float>(g - 0.5));
  EXPECT_EQ(judge_run_file(file).judgement.verdict, Verdict::fail);
}

TEST(Exchange, AStateThatGrowsIsRefused) {
  RunFile file = dump(kSavedLine).file;
  file.tensors.at("g").values[7] = 0.25;
  try {
    (void)judge_run_file(file);
    ADD_FAILURE() << "a log decay above 0 is taken";
  } catch (const Error& error) {
    EXPECT_EQ(lacking(error.what(), "'g' 7 0.25 at most"), "");
  }
}

// A file says as much of a fault as the run itself does.
TEST(Exchange, AFileIsExplainedAsARunIs) {
  for (const char* line : {kSavedLine, "v1 rms_norm form=fused T=9 B=2 H=3 D=24"}) {
    RunFile file = dump(line).file;
    for (auto& [name, tensor] : file.tensors) {
      if (name == "o" || name == "output.y")
        for (double& x : tensor.values) x *= 2.0;
    }
    Trace trace;
    EXPECT_EQ(judge_run_file(file, &trace).judgement.verdict, Verdict::fail) << line;
    const Explanation e = explain(Resolved(parse_case(file.case_line)), trace);
    EXPECT_FALSE(e.differs.empty()) << line;
    EXPECT_FALSE(e.values.empty()) << line;
    EXPECT_FALSE(e.patterns.empty()) << line;
  }
  Trace right;
  (void)judge_run_file(dump(kSavedLine).file, &right);
  EXPECT_TRUE(explain(Resolved(parse_case(kSavedLine)), right).differs.empty());
}

TEST(Exchange, LineAndShapesMustAgree) {
  const RunFile good = dump(kSavedLine).file;
  EXPECT_EQ(complaint(good), "");
  const auto with_line = [&](const std::string& from, const std::string& to) {
    RunFile file = good;
    file.case_line.replace(file.case_line.find(from), from.size(), to);
    return complaint(file);
  };
  for (const auto& [from, to, facts] :
       std::vector<std::array<const char*, 3>>{{"T=33", "T=34", "'q' [2, 33, 2, 16] [2, 34, 2, 16]"},
                                               {"B=2", "B=3", "'q' [3, 33, 2, 16]"},
                                               {"Hv=4", "Hv=2", "'v' [2, 33, 4, 8] [2, 33, 2, 8]"},
                                               {"Hk=2", "Hk=1", "'q' [2, 33, 1, 16]"},
                                               {"dk=16", "dk=8", "'q' [2, 33, 2, 8]"},
                                               {"dv=8", "dv=16", "'v' [2, 33, 4, 16]"},
                                               {" state=random", "", "'initial_state'"},
                                               {"gated_delta_rule", "delta_rule", "'g'"},
                                               {"gated_delta_rule", "retention", "'beta'"}})
    EXPECT_EQ(lacking(with_line(from, to), facts), "") << from << ": " << with_line(from, to);
  EXPECT_NE(with_line("v1", "v2").find("v2"), std::string::npos);
  EXPECT_NE(with_line("T=33", "T=33 size=1").find("size"), std::string::npos);
  EXPECT_NE(with_line("T=33", "T=33 law=split").find("law"), std::string::npos);
  EXPECT_NE(with_line("contract=bf16", "contract=fp8").find("fp8"), std::string::npos);
  EXPECT_NE(with_line("chunk=16", "chunk=0").find("chunk=0"), std::string::npos);
}

TEST(Exchange, PackedFilesNeedTheirLengths) {
  const RunFile packed =
      dump("v1 gated_delta_rule form=packed chunk=8 lengths=3,0,14 dk=8 state=random").file;
  RunFile file = packed;
  file.tensors.erase("cu_seqlens");
  EXPECT_NE(complaint(file), "");
  file = packed;
  file.case_line.replace(file.case_line.find("3,0,14"), 6, "4,0,13");
  EXPECT_NE(complaint(file).find("cu_seqlens"), std::string::npos) << complaint(file);
  RunFile dense = dump("v1 retention T=20 dk=8").file;
  dense.tensors["cu_seqlens"] = {"cu_seqlens", DType::i64, {2}, {0, 20}};
  EXPECT_NE(complaint(dense).find("packed"), std::string::npos) << complaint(dense);
}

TEST(Exchange, InputsMustBeFiniteAndRepresentable) {
  const RunFile good = dump(kSavedLine).file;
  for (const char* name : {"q", "k", "v", "g", "beta", "initial_state"}) {
    for (double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      RunFile file = good;
      file.tensors.at(name).values[5] = bad;
      EXPECT_NE(complaint(file).find(name), std::string::npos) << name << ": " << complaint(file);
    }
    // 1/3 is in no format; the first 24 bits of it are in fp32, which bf16 inputs are not. A gate is below 0.
    const float third = std::string_view(name) == "g" ? -1.0F / 3 : 1.0F / 3;
    RunFile file = good;
    file.tensors.at(name).dtype = DType::f64;
    file.tensors.at(name).values[5] = third < 0 ? -1.0 / 3 : 1.0 / 3;
    EXPECT_NE(complaint(file).find(name), std::string::npos) << name << ": " << complaint(file);
    file.tensors.at(name).values[5] = static_cast<double>(third);
    const bool bf16 = std::string_view("qkv").find(name) != std::string_view::npos;
    EXPECT_EQ(complaint(file).find(name) != std::string::npos, bf16) << name << ": " << complaint(file);
  }
}

TEST(Exchange, MissingTensorsAreErrors) {
  const RunFile good = dump(kSavedLine).file;
  for (const char* name : {"q", "k", "v", "o", "g", "beta", "initial_state", "final_state"}) {
    RunFile file = good;
    file.tensors.erase(name);
    EXPECT_NE(complaint(file), "") << name;
  }
}

TEST(Exchange, WhatHasNoSingleSetOfOutputsIsNotDumped) {
  for (const char* line :
       {"v1 retention T=20 dk=8 Hk=2 law=split", "v1 short_convolution form=scatter T=9 B=2 law=split"}) {
    try {
      (void)dump(line);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("drop law="), std::string::npos) << error.what();
    }
  }
}

constexpr const char* kOperator =
    "v1 linear_attention_normalised form=chunked chunk=8 T=13 B=2 H=2 dk=8 dv=4 contract=bf16";

/// Through a file and back.
Record judged_again(const RunFile& file) {
  const fs::path path =
      fs::path(testing::TempDir()) / ("exchange_operator." + std::to_string(::getpid()) + ".safetensors");
  write_run_file(path, file, named_shapes);
  Record out = judge_run_file(read_run_file(path, named_shapes));
  fs::remove(path);
  return out;
}

std::string stage_verdicts_in(const Judgement& j) {
  std::string out;
  for (const StageFinding& s : j.stages)
    out += fmt::format("/{} {} {}", s.stage, name_of(s.verdict), s.ratio);
  return out;
}

TEST(Exchange, EveryOperatorComesBackWithTheSameRatio) {
  std::set<std::string> seen;
  for (const OperatorKernel& kernel : operator_kernels()) {
    if (kernel.device != "cpu") continue;  // a device may not be here
    const Operator& op = *find_operator(kernel.system);
    std::vector<std::string> lines = {"v1 " + kernel.system + " form=" + kernel.form +
                                      " chunk=4 T=5 B=2 kernel=" + kernel.name};
    if (op.streams && seen.insert(kernel.system).second)
      lines.push_back("v1 " + kernel.system + " form=decode chunk=4 prefill=2 T=5 kernel=" + kernel.name);
    for (std::size_t i = lines.size(); i-- > 0 && !kernel.taps.empty();)
      lines.push_back(lines[i] + " contract=bf16 taps=1");
    for (const std::string& line : lines) {
      const Dumped dumped = dump(line);
      const Record back = judged_again(dumped.file);
      EXPECT_EQ(back.judgement.verdict, dumped.record.judgement.verdict)
          << line << ": " << back.judgement.reason;
      EXPECT_EQ(back.judgement.ratio, dumped.record.judgement.ratio) << line;
      EXPECT_EQ(back.judgement.rows, dumped.record.judgement.rows) << line;
      EXPECT_EQ(back.kernel, kernel.name);
      EXPECT_EQ(stage_verdicts_in(back.judgement), stage_verdicts_in(dumped.record.judgement)) << line;
      const bool taps = line.ends_with("taps=1");
      EXPECT_EQ(taps, !back.judgement.stages.empty()) << line;
    }
  }
}

// Taps are judged as they stand in the file, those that are there.
TEST(Exchange, TapsOfAFileAreJudged) {
  const RunFile good = dump("v1 latent_attention form=absorbed T=9 B=2 contract=bf16 taps=1").file;
  ASSERT_TRUE(good.tensors.contains("tap.q_latent"));
  RunFile file = good;
  for (double& x : file.tensors.at("tap.q_latent").values) x *= 2;
  const Judgement wrong = judged_again(file).judgement;
  EXPECT_EQ(wrong.verdict, Verdict::fail);
  EXPECT_EQ(wrong.stage, "absorption");
  file.tensors.erase("tap.q_latent");
  const Judgement fewer = judged_again(file).judgement;
  EXPECT_EQ(fewer.verdict, Verdict::pass) << fewer.reason;
  EXPECT_EQ(fewer.stages.size() + 2, judged_again(good).judgement.stages.size());
  file = good;
  file.tensors["tap.k"] = file.tensors.at("tap.q");
  EXPECT_EQ(lacking(complaint(file), "'tap.k' input.x"), "") << complaint(file);
  file = good;
  file.case_line.replace(file.case_line.find(" taps=1"), 7, "");
  EXPECT_EQ(lacking(complaint(file), "'tap.compressed'"), "") << complaint(file);
}

TEST(Exchange, ARunWithoutTokensHandsItsStateOn) {
  for (const char* line : {"v1 short_convolution form=scatter T=0", "v1 retention T=0 dk=8 state=random"}) {
    const Dumped dumped = dump(line);
    EXPECT_EQ(judged_again(dumped.file).judgement.ratio, dumped.record.judgement.ratio) << line;
    EXPECT_EQ(judged_again(dumped.file).judgement.verdict, dumped.record.judgement.verdict) << line;
  }
}

// Who calls a packed batch of named tensors makes calls of one of the system's forms.
TEST(Exchange, ARunThatNobodyMadeYetSaysItsForm) {
  const Resolved r(parse_case("v1 short_convolution form=packed lengths=4,0,6"));
  Record record;
  record.line = format_case(r.c);
  record.kernel = "elsewhere";
  const RunFile file = run_file_of(record, unwritten_run(r, "gather"));
  EXPECT_EQ(file.form, "gather");
  EXPECT_EQ(judged_again(file).judgement.verdict, Verdict::fail) << "its outputs are NaN";
}

TEST(Exchange, ATamperedOperatorFails) {
  const Dumped dumped = dump(kOperator);
  for (const char* name : {"output.o", "output.S", "output.z"}) {
    RunFile file = dumped.file;
    double& x = file.tensors.at(name).values[5];
    x = static_cast<double>(static_cast<float>(x + 3.0));
    EXPECT_EQ(judge_run_file(file).judgement.verdict, Verdict::fail) << name;
    x = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(judge_run_file(file).judgement.verdict, Verdict::fail) << name;
  }
  RunFile file = dumped.file;
  for (double& x : file.tensors.at("input.v").values) x *= 2;
  EXPECT_EQ(judge_run_file(file).judgement.verdict, Verdict::fail);
}

// The header alone must be enough to refuse a file: none of its tensors is read.
TEST(Exchange, AnOperatorFileIsCheckedAgainstItsCase) {
  const RunFile good = dump(kOperator).file;
  EXPECT_EQ(complaint(good), "");
  const fs::path path =
      fs::path(testing::TempDir()) / ("exchange_header." + std::to_string(::getpid()) + ".safetensors");
  const auto refused = [&](const std::function<void(std::vector<Tensor>&, Metadata&)>& damage) {
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : good.tensors) tensors.push_back(tensor);
    Metadata metadata = {{"format", "samestate-run-1"}, {"case", good.case_line}, {"kernel", "k"}};
    damage(tensors, metadata);
    write_safetensors(path, tensors, metadata);
    std::string message;
    try {
      (void)judge_run_file(read_run_file(path, named_shapes));
    } catch (const Error& error) {
      message = error.what();
    }
    fs::remove(path);
    return message;
  };
  const auto named = [](std::vector<Tensor>& tensors, const std::string& name) -> Tensor& {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  };
  EXPECT_EQ(refused([](auto&, auto&) {}), "");
  EXPECT_NE(refused([&](auto& t, auto&) { named(t, "input.q").name = "input.x"; }).find("'input.q': missing"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& t, auto&) {
              t.push_back(named(t, "input.q"));
              t.back().name = "output.extra";
            }).find("'output.extra': not one of input.q"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& t, auto&) {
              named(t, "output.S").dtype = DType::i64;
              for (double& x : named(t, "output.S").values) x = 1.0;
            }).find("'output.S': dtype I64"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& t, auto&) {
              named(t, "input.k").shape = {2, 16, 13};
            }).find("'input.k': its shape is [2, 16, 13] and the case line asks for [2, 13, 16]"),
            std::string::npos);
  EXPECT_NE(refused([&](auto&, auto& m) {
              m["case"].replace(m["case"].find("T=13"), 4, "T=14");
            }).find("asks for [2, 14, 16]"),
            std::string::npos);
  EXPECT_NE(
      refused([&](auto&, auto& m) { m["case"] = "v1 linear_attention_normalised form=chunked T=9000000"; }),
      "");
  EXPECT_NE(refused([&](auto&, auto& m) { m["case"] = "v1 retention T=13"; }), "");
  EXPECT_NE(refused([&](auto&, auto& m) { m["case"] = "v1 no_such_system"; }).find("no_such_system"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& t, auto&) { named(t, "input.v").values[3] = INFINITY; }).find("input.v"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& t, auto&) {
              named(t, "input.v").values[3] = static_cast<double>(1.0F / 3);
            }).find("input format"),
            std::string::npos);
}

TEST(Exchange, DecodeOfAnOperatorSaysWhichFormWasCalled) {
  const RunFile good = dump("v1 linear_attention_normalised form=decode prefill=3 T=6 H=2 dk=8 dv=4").file;
  EXPECT_EQ(good.form, "chunked");
  RunFile file = good;
  for (const char* form : {"", "parallel"}) {
    file.form = form;
    EXPECT_NE(complaint(file).find("recurrent, chunked"), std::string::npos) << complaint(file);
  }
}

}  // namespace
}  // namespace samestate
