// The law `serving` on kernels that break as serving engines do (BUGS M24-M30), in the whole run of a case.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::Copy;
using faulty::planted_table;

/// Verdicts over some seeds of the law; a program need not contain every kind of call.
int failures(const KernelTable& table, const std::string& form) {
  int count = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    const Case c = parse_case(
        "v1 gated_delta_rule form=" + form + " chunk=8 B=3 T=24 Hk=1 Hv=2 dk=8 dv=4 state=random " +
        "law=serving regime=slow kernel=planted.gated_delta_rule." + form + " seed=" + std::to_string(seed));
    const Record record = run_case(c, table);
    EXPECT_NE(record.judgement.verdict, Verdict::crash) << record.judgement.reason;
    count += record.judgement.verdict == Verdict::fail ? 1 : 0;
  }
  return count;
}

/// The state of every call, changed before the kernel sees it.
faulty::Fault with_state(float (*change)(float, const std::array<std::int64_t, 4>&)) {
  return [change](const Kernel& base, Arguments a, const Contract& contract) {
    Copy<4> state(a.initial_state, change);
    a.initial_state = state.view();
    return base.run(a, contract);
  };
}

TEST(Serving, RightKernelsServe) {
  EXPECT_EQ(failures(planted_table(faulty::undamaged), "chunked"), 0);
  EXPECT_EQ(failures(planted_table(faulty::undamaged), "recurrent"), 0);
}

TEST(Serving, ACallThatRestartsFromZeroFails) {  // M26
  const auto zero = with_state([](float, const auto&) { return 0.0F; });
  EXPECT_EQ(failures(planted_table(zero), "chunked"), 8);
  EXPECT_EQ(failures(planted_table(faulty::undamaged, zero), "recurrent"), 8);
}

TEST(Serving, OneTokenThatReadsAStaleStateFails) {  // M25: what the last call of any slot left
  static std::vector<float> last;
  const faulty::Fault stale = [](const Kernel& base, Arguments a, const Contract& contract) {
    Copy<4> state(a.initial_state);
    const View<float, 4> view = state.view();
    if (a.q.shape[1] == 1 && static_cast<std::int64_t>(last.size()) == view.size()) {
      std::copy(last.begin(), last.end(), view.data);
    }
    a.initial_state = view;
    const Outcome outcome = base.run(a, contract);
    last.clear();
    faulty::each(a.final_state, [](float& x, const auto&) { last.push_back(x); });
    return outcome;
  };
  EXPECT_GE(failures(planted_table(faulty::undamaged, stale), "chunked"), 4);
}

TEST(Serving, SlotsThatShareTheFirstStateFail) {  // M29: slot -1 clamped to 0
  const faulty::Fault shared = [](const Kernel& base, Arguments a, const Contract& contract) {
    const View<const float, 4> given = a.initial_state;
    Copy<4> state(a.initial_state, [&](float, const auto& at) { return given(0, at[1], at[2], at[3]); });
    a.initial_state = state.view();
    return base.run(a, contract);
  };
  EXPECT_GE(failures(planted_table(shared, shared), "chunked"), 6);
}

TEST(Serving, PaddingThatDecaysTheStateFails) {  // M30
  const faulty::Fault decays = [](const Kernel& base, Arguments a, const Contract& contract) {
    Copy<3> g(a.g, [](float x, const auto&) { return x == 0.0F ? -0.5F : x; });
    a.g = g.view();
    return base.run(a, contract);
  };
  EXPECT_GE(failures(planted_table(decays), "chunked"), 4);
}

TEST(Serving, AStateKeptInBf16Fails) {  // M24
  const auto bf16 = with_state([](float x, const auto&) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U);
  });
  EXPECT_EQ(failures(planted_table(faulty::undamaged, bf16), "recurrent"), 8);
}

}  // namespace
}  // namespace samestate
