#include "fuzz/plan/compiled_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cases/resolved.h"
#include "harness/records/record.h"
#include "harness/run/call_variant.h"
#include "optimized/kernel.h"

namespace samestate {
namespace {

constexpr const char* kKeysName = "mine.gated_delta_rule.chunked";

KernelTable with_subject(const std::vector<std::string>& limits = {}) {
  Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule.chunked");
  row.name = kKeysName, row.contracts = {"fp32", "bf16"}, row.limits = limits;
  KernelTable table(kernels());
  table.add(std::vector<Kernel>{row});
  table.converts(kKeysName, false, {}, {});
  return table;
}

/// A kernel that compiles for the keys, as a subject says of its calls, and refuses what breaks `takes`.
struct Compiler {
  KernelTable table;
  std::vector<std::string> keys;
  std::function<bool(const Case&)> takes = [](const Case&) { return true; };
  std::set<std::vector<std::string>> compiled = {};

  CompiledKeys found(const KernelRow& row) {
    KernelRow own = row;
    own.compiled_for = keys;
    return find_compiled_keys(row,
                              [this, own](const Case& c) {
                                CaseResult result;
                                result.spent.calls = 1;
                                if (!takes(c)) {
                                  result.judgement.verdict = Verdict::crash, result.judgement.gate = kRefusal;
                                  result.judgement.reason = "the kernel threw: no";
                                  return result;
                                }
                                result.judgement.verdict = Verdict::pass;
                                const bool fresh = compiled.insert(variant_of(own, c)).second;
                                result.spent.compiled = fresh ? 3 : 0;
                                result.spent.compile = fresh ? 2.5 : 0.0;
                                return result;
                              },
                              {});
  }
};

std::vector<std::string> sorted(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  return texts;
}

TEST(CompiledKeys, EachKeyThatCompilesAnewIsFoundAndNoOther) {
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"dk", "dv", "Hk", "Hv", "chunk", "contract", "state", "l2norm", "form"},
           {"dk", "contract"},
           {"T%16", "dv"},
           {"B%16", "T", "state"},
           {"Hv%16", "dk%16"}}) {
    Compiler compiler{with_subject(), keys};
    const CompiledKeys found = compiler.found(compiler.table.row_named(kKeysName));
    EXPECT_EQ(sorted(found.keys), sorted(keys));
    EXPECT_LE(found.calls, 32);
    EXPECT_EQ(found.compile, 2.5);
    EXPECT_TRUE(found.limits.empty());
  }
}

TEST(CompiledKeys, OfAKernelThatCompilesNothingTwoCallsAreEnough) {
  Compiler compiler{with_subject(), {}};
  compiler.compiled.insert(std::vector<std::string>());
  const CompiledKeys found = compiler.found(compiler.table.row_named(kKeysName));
  EXPECT_TRUE(found.keys.empty());
  EXPECT_FALSE(found.any);
  EXPECT_EQ(found.calls, 2);
}

TEST(CompiledKeys, SizesThatItRefusesAreALimit) {
  Compiler compiler{
      with_subject(), {"contract", "state"}, [](const Case& c) { return c.dk == 128 && c.dv == 128; }};
  const CompiledKeys found = compiler.found(compiler.table.row_named(kKeysName));
  EXPECT_EQ(sorted(found.limits), (std::vector<std::string>{"dk = 128", "dv = 128"}));
  EXPECT_EQ(sorted(found.keys), (std::vector<std::string>{"contract", "state"}));
  EXPECT_EQ(found.refusal, "the kernel threw: no");
}

TEST(CompiledKeys, NothingIsLearnedOfAKernelThatTakesNothing) {
  Compiler compiler{with_subject(), {"dk"}, [](const Case&) { return false; }};
  const CompiledKeys found = compiler.found(compiler.table.row_named(kKeysName));
  EXPECT_TRUE(found.keys.empty());
  EXPECT_TRUE(found.limits.empty());
}

}  // namespace
}  // namespace samestate
