#include "harness/run/guarded_tensor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "harness/run/guard.h"
#include "harness/run/run_case.h"
#include "harness/run/runner.h"

namespace samestate {
namespace {

using Shape = std::array<std::int64_t, 4>;

std::vector<float> counted(std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(GuardedTensor, GivesBackWhatItWasGivenInEveryLayout) {
  for (const Layout layout : {Layout::dense, Layout::padded, Layout::far}) {
    for (const Shape& shape : {Shape{3, 2, 2, 5}, Shape{1, 4, 2, 3}, Shape{1, 1, 2, 3}, Shape{2, 0, 1, 4}}) {
      GuardedTensor x(shape, layout);
      const std::vector<float> values = counted(x.view().size());
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

// The offset that a product of ints makes is another one, and no other tensor's: what is there can be read.
TEST(GuardedTensor, FarRowsOverflowAnInt) {
  constexpr std::int64_t int_end = std::int64_t{1} << 31;
  for (const Shape& shape : {Shape{3, 2, 2, 5}, Shape{1, 33, 2, 5}, Shape{1, 2, 1, 1}}) {
    GuardedTensor x(shape, Layout::far);
    x.set(counted(x.view().size()));
    const View<float, 4>& v = x.view();
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

TEST(GuardedTensor, SeesAWriteBesideARow) {
  for (const Layout layout : {Layout::dense, Layout::padded, Layout::far}) {
    for (const Shape& shape : {Shape{3, 2, 2, 5}, Shape{1, 4, 2, 3}}) {
      const std::int64_t B = shape[0] - 1, T = shape[1] - 1, H = shape[2] - 1, D = shape[3] - 1;
      GuardedTensor before(shape, layout), after(shape, layout);
      (&before.view()(0, 0, 0, 0))[-1] = 1.0F;
      EXPECT_THROW(before.check_surroundings("x"), Trespass);
      (&after.view()(B, T, H, D))[1] = 1.0F;
      EXPECT_THROW(after.check_surroundings("x"), Trespass);
    }
  }
  GuardedTensor between({3, 2, 2, 5}, Layout::far);
  (&between.view()(1, 1, 1, 4))[kGuard] = 1.0F;
  EXPECT_THROW(between.check_surroundings("x"), Trespass);
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
  o.view()(1, 2, 0, 3) = 0.0F;
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
