#include "harness/run/kernel_table.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tests/facts.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

/// Returns what a table says about the row, changed and with a name of its own; empty if it accepts the row.
template <class Row, class Change>
std::string refused(Row row, Change&& change) {
  row.name = "mine." + row.system + "." + row.form;
  change(row);
  KernelTable table(kernels(), operator_kernels());
  try {
    table.add(std::span<const Row>(&row, 1));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KernelTable, ARowIsOneOfItsSystemsKind) {
  const Kernel family = KernelTable(kernels()).named("cpu.retention.chunked");
  const OperatorKernel tensors = operator_row("cpu.linear_attention_normalised.chunked");
  EXPECT_EQ(refused(family, [](Kernel&) {}), "");
  EXPECT_EQ(refused(tensors, [](OperatorKernel&) {}), "");
  EXPECT_NE(refused(family, [](Kernel& row) { row.system = "rms_norm"; })
                .find("a kernel of rms_norm is a row of samestate_plugin_operator_kernels"),
            std::string::npos);
  EXPECT_NE(refused(tensors, [](OperatorKernel& row) { row.system = "retention"; })
                .find("a kernel of retention is a row of samestate_plugin_kernels"),
            std::string::npos);
}

TEST(KernelTable, ARowNamesWhatIsThere) {
  const Kernel family = KernelTable(kernels()).named("cpu.retention.chunked");
  const OperatorKernel tensors = operator_row("cpu.linear_attention_normalised.chunked");
  EXPECT_NE(refused(family, [](Kernel& row) { row.form = "decode"; })
                .find("chunked or recurrent or sequence_parallel or head_parallel, not 'decode'"),
            std::string::npos)
      << refused(family, [](Kernel& row) { row.form = "decode"; });
  EXPECT_NE(refused(tensors, [](OperatorKernel& row) { row.form = "packed"; }).find("recurrent or chunked"),
            std::string::npos);
  EXPECT_NE(refused(family, [](Kernel& row) { row.contracts = {"bf17"}; }).find("bf17"), std::string::npos);
  EXPECT_NE(refused(family, [](Kernel& row) { row.system = "mamba"; }).find("mamba"), std::string::npos);
  EXPECT_NE(refused(tensors,
                    [](OperatorKernel& row) {
                      row.contracts = {"tf32", "bf16+qk:tf32"};
                    })
                .find("promises bf16+qk:tf32, and no bound of system linear_attention_normalised knows"),
            std::string::npos);
  const std::string name =
      refused(family, [](Kernel& row) { row.name = std::string(1 << 20, 'a') + ".chunked"; });
  EXPECT_EQ(lacking(name, "name 1048584 200"), "") << name;
  EXPECT_LT(name.size(), 300U);
  const std::string alone = refused(family, [](Kernel& row) { row.contracts = {"any"}; });
  EXPECT_NE(alone.find("its row promises only any"), std::string::npos) << alone;
  const std::string none = refused(family, [](Kernel& row) { row.contracts = {}; });
  EXPECT_NE(none.find("its row promises no contract"), std::string::npos) << none;
  // A table of rows that existed from the start must have the same names.
  Kernel wrong = family;
  wrong.contracts = {"bf17"};
  EXPECT_THROW(KernelTable(std::span<const Kernel>(&wrong, 1)), Error);
}

// A row whose function takes a KernelCall may be of a system of either kind, and is told which row is called.
TEST(KernelTable, ARowOfCallsIsOfAnySystem) {
  std::vector<CallKernel> rows;
  std::vector<std::string> told;
  for (const auto& [system, form] : {std::pair{"retention", "chunked"}, {"rms_norm", "fused"}}) {
    CallKernel row;
    row.name = std::string("mine.") + system + "." + form;
    row.system = system, row.form = form, row.device = "cpu", row.contracts = {"fp32"};
    row.run = [&told](const KernelCall& call, const Contract&) {
      told.push_back(std::string(call.system) + "/" + std::string(call.form));
      return Outcome{};
    };
    rows.push_back(row);
  }
  rows.back().strided = false;
  KernelTable table(kernels(), operator_kernels());
  table.add(rows);
  KernelCall call;
  call.tokens = 1;
  std::array<float, 8> values{};
  call.inputs = {{.name = "x", .shape = {1, 2, 2}, .stride = {4, 2, 1}, .data = values.data()}};
  for (const CallKernel& row : rows) {
    const KernelRow& mine = table.row_named(row.name);
    EXPECT_EQ(mine.run(call, {}).kind, Outcome::Kind::ran) << row.name;
  }
  EXPECT_EQ(told, (std::vector<std::string>{"retention/chunked", "rms_norm/fused"}));
  // One that takes dense tensors alone is not called with others.
  call.inputs.front().stride = {8, 4, 1};
  EXPECT_THROW((void)table.row_named(rows.back().name).run(call, {}), Unavailable);
  EXPECT_EQ(table.row_named(rows.front().name).run(call, {}).kind, Outcome::Kind::ran);
  // The struct of one kind is not called for a system of the other.
  CallKernel family = by_call(KernelTable(kernels()).named("cpu.retention.chunked"));
  EXPECT_EQ(refused(family, [](CallKernel&) {}), "");
  EXPECT_NE(refused(family, [](CallKernel& row) { row.system = "rms_norm", row.form = "fused"; })
                .find("a kernel of rms_norm is a row of samestate_plugin_operator_kernels"),
            std::string::npos);
}

// Calls of form=decode of named tensors are the kernel's own, with the line's chunk; those of the family alternate.
TEST(KernelTable, LimitsSpeakOfTheCallsOfNamedTensorsToo) {
  OperatorKernel row = operator_row("cpu.linear_attention_normalised.chunked");
  row.limits = {"chunk <= 8", "T <= 20", "dk = 4"};
  const KernelRow limited = adapted(row);
  const std::string system = "v1 linear_attention_normalised ";
  const auto inside = [&](const std::string& line) {
    return within_limits(limited, parse_case(system + line));
  };
  EXPECT_TRUE(inside("form=chunked chunk=8 T=20 dk=4"));
  EXPECT_FALSE(inside("form=chunked chunk=9 T=20 dk=4"));
  EXPECT_FALSE(inside("form=chunked chunk=8 T=21 dk=4"));
  EXPECT_FALSE(inside("form=chunked chunk=8 T=20 dk=5"));
  EXPECT_TRUE(inside("form=decode chunk=8 prefill=20 T=30 dk=4"));
  EXPECT_FALSE(inside("form=decode chunk=8 prefill=21 T=30 dk=4"));
  EXPECT_FALSE(inside("form=decode chunk=9 prefill=20 T=30 dk=4"));
}

// A kernel of prompts alone: no call of it has keys of an earlier one.
TEST(KernelTable, LimitsMayLeaveOutCallsBehindOthers) {
  OperatorKernel row = operator_row("cpu.softmax_attention.online");
  row.limits = {"form != decode"};
  const KernelRow prompts = adapted(row);
  const auto inside = [&](const std::string& line) {
    return within_limits(prompts, parse_case("v1 softmax_attention " + line));
  };
  EXPECT_TRUE(inside("form=online T=9"));
  EXPECT_TRUE(inside("form=online T=9 law=causality"));
  EXPECT_FALSE(inside("form=decode prefill=3 T=9"));
  EXPECT_FALSE(inside("form=online T=9 law=split"));
  EXPECT_FALSE(inside("form=online T=9 law=serving"));
  EXPECT_FALSE(inside("form=online T=9 law=reset")) << "its request is made again in two calls";
  row.limits = {"form = decode"};
  const KernelRow serves = adapted(row);
  EXPECT_TRUE(within_limits(serves, parse_case("v1 softmax_attention form=decode prefill=3 T=9")));
  EXPECT_FALSE(within_limits(serves, parse_case("v1 softmax_attention form=online T=9")));
}

// The keys of a call are read from the call alone, in every system, and so are sizes that a law has changed.
TEST(KernelTable, ACallIsReadAsItsCaseLine) {
  const KernelRow family = adapted(KernelTable(kernels()).named("cpu.retention.chunked"));
  KernelCall call;
  call.batch = 3;
  call.tokens = 5;
  call.set("chunk", 16.0);
  call.set("l2norm", 1.0);
  call.set("tiled", 1.0);
  call.parameters = {{"Hk", 2}, {"Hv", 4}, {"dk", 6}, {"dv", 7}};
  const Case c = as_called(parse_case("v1 retention T=99 state=random"), family, CallShape(call));
  EXPECT_EQ(c, parse_case("v1 retention chunk=16 B=3 T=5 Hk=2 Hv=4 heads=tiled dk=6 dv=7 l2norm=1"));
  // Lengths are those of the call, so that a limit on the shortest sequence sees an empty one.
  std::array<std::int64_t, 4> ends{2, 5, 5, 7};
  call.batch = 1;
  call.cu_seqlens = {ends.data(), {4}, {1}};
  const Case packed = as_called(parse_case("v1 retention form=packed lengths=99"), family, CallShape(call));
  EXPECT_EQ(packed.form, "packed");
  EXPECT_EQ(packed.lengths, (std::vector<std::int64_t>{3, 0, 2}));
  const KernelRow tensors = adapted(operator_row("cpu.linear_attention_normalised.chunked"));
  KernelCall other;
  other.tokens = 5;
  other.set("chunk", 8.0);
  other.parameters = {{"dk", 6}};
  const std::string line = "v1 linear_attention_normalised form=chunked chunk=8 ";
  EXPECT_EQ(as_called(parse_case(line + "T=9"), tensors, CallShape(other)), parse_case(line + "T=5 dk=6"));
}

}  // namespace
}  // namespace samestate
