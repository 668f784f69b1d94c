#include "harness/run/guarded_tensor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "harness/run/call_loop.h"
#include "harness/run/guard.h"
#include "harness/run/guarded_memory.h"
#include "harness/run/run_case.h"

namespace samestate {
namespace {

using TensorShape = std::vector<std::int64_t>;

std::vector<float> counted(std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(GuardedTensor, GivesBackWhatItWasGivenInEveryLayout) {
  for (const std::string_view name : layout_names()) {
    const Layout layout = layout_named(name);
    for (const TensorShape& shape : {TensorShape{3, 2, 2, 5}, TensorShape{1, 4, 2, 3},
                                     TensorShape{1, 1, 2, 3}, TensorShape{2, 0, 1, 4}}) {
      GuardedTensor x(shape, layout);
      const std::vector<float> values = counted(x.view<4>().size());
      x.set(values);
      EXPECT_EQ(x.get(), values);
      EXPECT_TRUE(x.same_as(values));
      x.check_surroundings("x");
      const GuardedTensor moved = std::move(x);
      EXPECT_EQ(moved.get(), values);
    }
  }
  EXPECT_EQ(layout_named("far"), Layout::far);
  EXPECT_THROW((void)layout_named("near"), Error);
}

// The offset that a product of ints makes is another one, and no other tensor's: what is there is not the tensor's.
TEST(GuardedTensor, FarRowsOverflowAnInt) {
  constexpr std::int64_t int_end = std::int64_t{1} << 31;
  for (const TensorShape& shape :
       {TensorShape{3, 2, 2, 5}, TensorShape{1, 33, 2, 5}, TensorShape{1, 2, 1, 1}}) {
    GuardedTensor x(shape, Layout::far);
    x.set(counted(x.view<4>().size()));
    x.open_output("x");
    const View<float, 4> v = x.view<4>();
    const std::int64_t last = &v(shape[0] - 1, shape[1] - 1, 0, 0) - v.data;
    EXPECT_GT(last, int_end);
    const auto wrapped = static_cast<std::int32_t>(last);
    EXPECT_NE(v.data[wrapped], v.data[last]);
    const auto unsigned_wrapped = static_cast<std::uint32_t>(last);
    if (unsigned_wrapped != last) {
      EXPECT_NE(v.data[unsigned_wrapped], v.data[last]);
    }
  }
}

// Batch, tokens and heads are far apart in one tensor of a call or another, and in each tensor of some call.
TEST(GuardedTensor, FarRowsAreOfEveryDimension) {
  constexpr std::int64_t int_end = std::int64_t{1} << 31;
  std::set<std::size_t> of_call;
  for (std::size_t number = 0; number < 3; ++number) {
    std::set<std::size_t> of_tensor;
    for (const std::int64_t T : {4, 5, 6}) {
      const TensorPlace place{{2, T, 3, 5}, Axis::tokens};
      GuardedTensor x(place, Layout::far, number);
      const std::vector<float> values = counted(2 * T * 3 * 5);
      x.set(values);
      EXPECT_EQ(x.get(), values);
      x.check_surroundings("x");
      for (std::size_t d = 0; d < 3; ++d) {
        if ((x.tensor().shape[d] - 1) * x.tensor().stride[d] <= int_end) continue;
        of_tensor.insert(d);
        if (T == 4) of_call.insert(d);
      }
    }
    EXPECT_EQ(of_tensor.size(), 3U) << number;
  }
  EXPECT_EQ(of_call.size(), 3U);
}

TEST(GuardedTensor, SeesAWriteBesideARow) {
  for (const std::string_view name : layout_names()) {
    const Layout layout = layout_named(name);
    for (const TensorShape& shape : {TensorShape{3, 2, 2, 5}, TensorShape{1, 4, 2, 3}}) {
      const std::int64_t B = shape[0] - 1, T = shape[1] - 1, H = shape[2] - 1, D = shape[3] - 1;
      GuardedTensor before(shape, layout), after(shape, layout);
      before.open_output("x");
      after.open_output("x");
      (&before.view<4>()(0, 0, 0, 0))[-1] = 1.0F;
      EXPECT_THROW(before.check_surroundings("x"), Trespass);
      (&after.view<4>()(B, T, H, D))[1] = 1.0F;
      EXPECT_THROW(after.check_surroundings("x"), Trespass);
    }
  }
  GuardedTensor between({3, 2, 2, 5}, Layout::far);
  between.open_output("x");
  (&between.view<4>()(1, 1, 1, 4))[kGuard] = 1.0F;
  EXPECT_THROW(between.check_surroundings("x"), Trespass);
}

/// q, k and v of a call of two sequences of five tokens.
std::vector<TensorPlace> projection(std::int64_t lead = 0, std::int64_t slack = 0) {
  const auto of = [&](std::int64_t heads, std::int64_t width) {
    return TensorPlace{{2, 5 + lead + slack, heads, width}, Axis::tokens, true, lead, slack};
  };
  return {of(2, 3), of(2, 3), of(4, 6)};
}

TEST(GuardedTensor, MixedTensorsShareNoStride) {
  std::vector<TensorPlace> places(8, TensorPlace{{2, 5, 4, 3}});
  const std::vector<GuardedTensor> x = guarded_tensors(places, Layout::mixed, 3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].tensor().stride[3], 1);
    for (std::size_t j = 0; j < i; ++j) {
      if (x[i].tensor().dense() || x[j].tensor().dense()) continue;
      for (const std::size_t d : {0, 1, 2})
        EXPECT_NE(x[i].tensor().stride[d], x[j].tensor().stride[d]) << i << j << d;
    }
  }
}

TEST(GuardedTensor, OfMixedTensorsAnyMayBeTheOneThatIsDense) {
  // For example, a norm's x and y have both orders, both dense and neither, each for a fair share of the
  // sizes.
  int seen[2][2] = {};
  for (std::int64_t tokens = 2; tokens < 42; ++tokens) {
    const std::vector<TensorPlace> places(3, TensorPlace{{2, tokens, 4, 3}});
    const std::vector<GuardedTensor> x = guarded_tensors(places, Layout::mixed, 0);
    ++seen[x[0].tensor().dense() ? 1 : 0][x[2].tensor().dense() ? 1 : 0];
  }
  for (const auto& row : seen) {
    for (const int cases : row) EXPECT_GE(cases, 4);
  }
}

TEST(GuardedTensor, FusedTensorsAreColumnsOfOneBuffer) {
  std::vector<GuardedTensor> x = guarded_tensors(projection(), Layout::fused, 0);
  const auto all = [&](auto&& act) {
    for (std::size_t i = 0; i < x.size(); ++i) act(x[i], static_cast<float>(i));
  };
  constexpr std::int64_t kRow = 2 * 3 + 2 * 3 + 4 * 6;
  all([&](GuardedTensor& t, float at) {
    EXPECT_EQ(t.tensor().stride[1], kRow);
    EXPECT_EQ(t.tensor().stride[0], 5 * kRow);
    EXPECT_EQ(t.tensor().data - x[0].tensor().data, static_cast<std::int64_t>(at) * 6);
    t.set(std::vector<float>(static_cast<std::size_t>(t.tensor().size()), at));
  });
  all([&](GuardedTensor& t, float at) {
    for (const float value : t.get()) ASSERT_EQ(value, at);
    t.check_surroundings("x");
  });
  // Its neighbour comes right after its row, so a write there is reported for the neighbour.
  (&x[0].view<4>()(1, 2, 1, 2))[1] = 9.0F;
  EXPECT_NO_THROW(x[0].check_surroundings("q"));
  EXPECT_FALSE(x[1].same_as(std::vector<float>(2 * 5 * 6, 1.0F)));
  (&x[2].view<4>()(1, 4, 3, 5))[1] = 9.0F;
  EXPECT_THROW(x[0].check_surroundings("q"), Trespass);
  // States of the same sequences share rows too, weights do not.
  const std::vector<GuardedTensor> states =
      guarded_tensors({TensorPlace{{3, 2, 4}}, TensorPlace{{3, 5}}, TensorPlace{{3, 5}, Axis::whole, false}},
                      Layout::fused, 0);
  EXPECT_EQ(states[0].tensor().stride[0], 13);
  EXPECT_EQ(states[1].tensor().stride[0], 13);
  EXPECT_TRUE(states[2].tensor().dense());
}

TEST(GuardedTensor, PermutedTensorsHaveHeadsFirst) {
  const std::vector<GuardedTensor> x =
      guarded_tensors({TensorPlace{{2, 5, 4, 3}, Axis::tokens}, TensorPlace{{2, 4, 6, 3}},
                       TensorPlace{{2, 5, 3}, Axis::tokens}},
                      Layout::permuted, 0);
  EXPECT_EQ(x[0].tensor().stride, (TensorShape{60, 3, 15, 1}));  // [B, H, T, D]
  EXPECT_EQ(x[1].tensor().stride, (TensorShape{18, 36, 3, 1}));  // [H, N, dk, dv]
  EXPECT_EQ(x[2].tensor().stride, (TensorShape{3, 6, 1}));       // [T, B, D]
}

TEST(GuardedTensor, SlicedTensorsHaveAGapBehindEachRowAlone) {
  const std::vector<GuardedTensor> x = guarded_tensors(
      {TensorPlace{{2, 5, 4, 3}, Axis::tokens}, TensorPlace{{2, 4, 6, 3}}, TensorPlace{{2, 5}}},
      Layout::sliced, 0);
  EXPECT_EQ(x[0].tensor().stride, (TensorShape{220, 44, 11, 1}));
  EXPECT_EQ(x[1].tensor().stride, (TensorShape{144, 36, 6, 1}));
  EXPECT_EQ(x[2].tensor().stride, (TensorShape{13, 1}));
}

// A kernel that takes rows of one pitch for those of a batch without gaps.
TEST(GuardedTensor, OnlyASlicedBatchShowsThatItsPitchIsForgotten) {
  Kernel kernel = *std::find_if(kernels().begin(), kernels().end(),
                                [](const Kernel& k) { return k.name == "cpu.retention.recurrent"; });
  kernel.name = "test.retention.recurrent";
  kernel.run = [right = kernel.run](const Arguments& a, const Contract& contract) {
    Arguments wrong = a;
    auto& k = wrong.k;
    if (k.stride[1] == k.shape[2] * k.stride[2]) k.stride[0] = k.shape[1] * k.shape[2] * k.shape[3];
    return right(wrong, contract);
  };
  const KernelTable table(std::vector<Kernel>{kernel});
  for (const std::string_view name : layout_names()) {
    const Judgement j =
        run_case(parse_case(fmt::format("v1 retention form=recurrent B=2 T=5 Hk=2 Hv=4 dk=8 dv=8 layout={} "
                                        "kernel=test.retention.recurrent",
                                        name)),
                 table)
            .judgement;
    if (name == "permuted" || name == "far") continue;  // there one pitch is that of other rows
    EXPECT_EQ(j.verdict == Verdict::pass, name != "sliced") << name << ": " << j.reason;
  }
}

// A load of several elements at the end of the last row touches this page.
TEST(GuardedTensor, BehindTheEndOfAPageNobodyReads) {
  for (const TensorShape& shape :
       {TensorShape{3, 2, 2, 5}, TensorShape{1, 1, 1, 1}, TensorShape{1, 64, 16, 4}}) {
    GuardedTensor x(shape, Layout::page_end);
    const StridedTensor& t = x.tensor();
    EXPECT_TRUE(t.dense());
    x.set(counted(t.size()));
    EXPECT_EQ(t.data[t.size() - 1], static_cast<float>(t.size()));
    x.open_output("x");
    x.check_surroundings("x");
    const volatile float* behind = t.data + t.size();
    EXPECT_TRUE(from_outside(*behind)) << "so that it shows in what is computed";
    try {
      x.check_surroundings("x");
      ADD_FAILURE() << "nothing was said";
    } catch (const Trespass& trespass) {
      EXPECT_STREQ(trespass.what(), "the kernel read outside x: 1 element behind its last");
    }
    GuardedTensor before(shape, Layout::page_end);
    before.open_output("x");
    before.tensor().data[-1] = 0.0F;
    EXPECT_THROW(before.check_surroundings("x"), Trespass);
  }
}

// The tensor is flush with the page before it and with the page after it, by turns: one of the two neighbours
// can be written, and is checked.
TEST(GuardedTensor, LiesAtEitherEndOfItsPages) {
  std::set<bool> begins, ends;
  for (const std::uint64_t turn : {0, 1}) {
    GuardedTensor x(TensorPlace{{2, 3, 1, 8}}, Layout::dense, 0, turn);
    const auto first = reinterpret_cast<std::uintptr_t>(x.tensor().data);
    begins.insert(first % kPageBytes == 0);
    ends.insert((first + 48 * sizeof(float)) % kPageBytes == 0);
    EXPECT_EQ(first % 64, 0U);
  }
  EXPECT_EQ(begins.size() + ends.size(), 4U);
}

// A value that is put back before the call returns cannot be told afterwards.
TEST(GuardedTensor, WhatIsClosedCanOnlyBeRead) {
  for (const std::string_view name : layout_names()) {
    GuardedTensor x(TensorShape{2, 3, 1, 5}, layout_named(name));
    x.set(counted(30));
    x.close_input("x");
    EXPECT_EQ(x.get(), counted(30)) << name;
    x.check_surroundings("x");
    volatile float* first = x.tensor().data;
    *first = *first;
    EXPECT_TRUE(x.same_as(counted(30)));
    try {
      x.check_surroundings("x");
      ADD_FAILURE() << name << ": nothing was said";
    } catch (const Trespass& trespass) {
      EXPECT_STREQ(trespass.what(), "the kernel wrote to its input x: element 0 of its buffer") << name;
    }
  }
}

// A norm in place that is undone before the call returns.
TEST(GuardedTensor, AKernelThatPutsItsInputBackIsSeen) {
  Kernel kernel = *std::find_if(kernels().begin(), kernels().end(),
                                [](const Kernel& k) { return k.name == "cpu.retention.recurrent"; });
  kernel.name = "test.retention.recurrent";
  kernel.run = [right = kernel.run](const Arguments& a, const Contract& contract) {
    float* first = const_cast<float*>(a.q.data);
    const float was = *first;
    *const_cast<volatile float*>(first) = 2.0F * was;
    *const_cast<volatile float*>(first) = was;
    return right(a, contract);
  };
  const KernelTable table(std::vector<Kernel>{kernel});
  const auto run = [&](const std::string& rest) {
    return run_case(
               parse_case("v1 retention form=recurrent T=5 dk=8 dv=8 kernel=test.retention.recurrent" + rest),
               table)
        .judgement.verdict;
  };
  for (const char* keys :
       {"", " layout=page_end", " layout=far", " repeat=1", " state=random final=in_place", " final=none"})
    EXPECT_EQ(run(keys), Verdict::fail) << keys;
}

TEST(GuardedTensor, TokensOfNoSequenceAreNotItsOwn) {
  for (const std::string_view name : layout_names()) {
    for (const std::int64_t token : {1, 8}) {
      std::vector<TensorPlace> places = projection(2, 3);
      for (TensorPlace& place : places) place.shape[0] = 1;
      std::vector<GuardedTensor> x = guarded_tensors(places, layout_named(name), 0);
      const std::vector<float> values = counted(5 * 2 * 3);
      x[0].set(values);
      EXPECT_EQ(x[0].get(), values);
      EXPECT_EQ(x[0].view<4>()(0, 2, 0, 0), 1.0F);
      EXPECT_TRUE(from_outside(x[0].view<4>()(0, token, 1, 2)));
      x[0].check_surroundings("q");
      x[0].view<4>()(0, token, 1, 2) = 0.0F;
      try {
        x[0].check_surroundings("q");
        ADD_FAILURE() << name << ": nothing was said";
      } catch (const Trespass& trespass) {
        EXPECT_NE(std::string(trespass.what()).find("q of token " + std::to_string(token)), std::string::npos)
            << trespass.what();
      }
    }
  }
}

TEST(GuardedTensor, HoldsNansAndHugeNumbersBeforeACall) {
  GuardedTensor o({2, 4, 3, 8}, Layout::padded);
  o.spoil();
  int nan = 0, high = 0, low = 0;
  for (const float x : o.get()) {
    nan += x != x;
    high += x > 1e38F;
    low += x < -1e38F;
  }
  EXPECT_EQ(nan + high + low, 2 * 4 * 3 * 8);
  for (const int count : {nan, high, low}) EXPECT_GT(count, 30);
  for (const float x : o.written()) EXPECT_TRUE(poisoned(x));
  o.view<4>()(1, 2, 0, 3) = 0.0F;
  EXPECT_EQ(std::ranges::count_if(o.written(), poisoned), 2 * 4 * 3 * 8 - 1);
  o.check_surroundings("o");
}

TEST(GuardedTensor, WithoutTheAddressSpaceACaseIsSkipped) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's shadow needs more address space than any limit leaves";
#endif
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const rlimit four_gib{std::uint64_t{4} << 30, std::uint64_t{4} << 30};
    if (::setrlimit(RLIMIT_AS, &four_gib) != 0) ::_exit(2);
    const Judgement j =
        run_case(parse_case("v1 retention B=2 T=4 dk=2 layout=far"), KernelTable(kernels())).judgement;
    const bool skipped = j.verdict == Verdict::skipped && j.reason.find("ulimit -v") != std::string::npos;
    ::_exit(skipped ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace samestate
