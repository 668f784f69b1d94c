#include <cmath>

#include "tests/fuzz/mutants/faults.h"

namespace samestate::planted {
namespace {

constexpr const char* kWindows = "cpu.overlap_windows.channels";
constexpr const char* kRouter = "cpu.dendritic_router.chosen";
constexpr const char* kLayer = "cpu.dendritic_attention.compacted";

std::int64_t channels_of(const OperatorArguments& call) {
  return call.parameter("N") * call.parameter("stride") + call.parameter("O");
}
std::int64_t width_of(const OperatorArguments& call) {
  return call.parameter("N") > 1 ? call.parameter("stride") + call.parameter("O") : channels_of(call);
}
std::int64_t candidates_of(const OperatorArguments& call) {
  return call.parameter("K") + call.parameter("idle");
}

/// The order of `size` blocks [first, second] of an input's rows becomes [second, first].
void transpose_blocks(std::span<float> x, std::int64_t first, std::int64_t second, std::int64_t size) {
  const std::vector<float> from(x.begin(), x.end());
  for (std::int64_t i = 0; i < first; ++i) {
    for (std::int64_t j = 0; j < second; ++j) {
      std::copy_n(from.begin() + (i * second + j) * size, size, x.begin() + (j * first + i) * size);
    }
  }
}

/// Of equals the higher index: candidates in reverse on the way in, and back on the way out.
Outcome ties_upwards(const OperatorKernel& right, Damaged& call, const Contract& contract) {
  const auto d = static_cast<std::size_t>(call.call.parameter("d"));
  const std::span<float> router = call.input("router");
  for (std::size_t i = 0, j = router.size() / d; i + 1 < j; ++i) {
    --j;
    for (std::size_t c = 0; c < d; ++c) std::swap(router[i * d + c], router[j * d + c]);
  }
  const Outcome outcome = right.run(call.call, contract);
  const std::int64_t shared = call.call.parameter("Es");
  const std::int64_t branches = shared + candidates_of(call.call);
  for (const char* name : {"omega", "mask"}) {
    const std::span<float> x = call.output(name);
    for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(branches)) {
      std::reverse(x.begin() + static_cast<std::int64_t>(i) + shared,
                   x.begin() + static_cast<std::int64_t>(i) + branches);
    }
  }
  return outcome;
}

TEST(DendriticFaults, WindowsAndRouter) {
  expect_killed({
      misread("windows begin a channel late", kWindows,
              [](Damaged& call) {
                call.groups("x", call.width("x"), [](std::span<float> row) {
                  std::rotate(row.begin(), row.begin() + 1, row.end());
                });
              }),
      misread("shared channels from the earlier window alone", kWindows,
              [](Damaged& call) {
                const std::int64_t w = width_of(call.call);
                std::int64_t n = 0;
                call.groups("parts", w, [&](std::span<float> part) {
                  if (n++ % call.call.parameter("N") != 0)
                    std::fill_n(part.begin(), call.call.parameter("O"), 0.0F);
                });
              }),
      misread("the overlap is one channel short", kWindows,
              [](Damaged& call) {
                if (call.call.parameter("O") > 0) call.set("O", call.call.parameter("O") - 1);
              }),
      miswritten("shared channels averaged", kWindows,
                 [](Damaged& call) {
                   const std::int64_t d = channels_of(call.call);
                   const std::int64_t s = call.call.parameter("stride");
                   std::int64_t i = 0;
                   for (float& x : call.output("sum")) {
                     const std::int64_t c = i++ % d;
                     if (c >= s && c < width_of(call.call)) x *= 0.5F;
                   }
                 }),
      {"of equal logits the higher index", kRouter, ties_upwards},
      misread("one branch too few", kRouter,
              [](Damaged& call) {
                if (call.call.parameter("K") < 2) return;
                call.set("K", call.call.parameter("K") - 1);
                call.set("idle", call.call.parameter("idle") + 1);
              }),
      misread("candidates counted from the shared branches", kRouter,
              [](Damaged& call) {
                const std::span<float> router = call.input("router");
                if (router.empty()) return;
                std::rotate(router.begin(), router.begin() + call.width("router"), router.end());
              }),
      misread("temperature of d^-1/2", kRouter,
              [](Damaged& call) {
                const auto root = std::sqrt(static_cast<float>(call.call.parameter("d")));
                call.each("router", [root](float w) { return w / root; });
              }),
      miswritten("shared and chosen weights not brought to one", kRouter,
                 [](Damaged& call) {
                   for (float& x : call.output("omega")) x *= 2.0F;
                 }),
  });
}

TEST(DendriticFaults, Layer) {
  expect_killed({
      misread("convolution states of q not carried", kLayer,
              [](Damaged& call) { call.fill("conv_q", 0.0F); }),
      misread("convolution states of v not carried", kLayer,
              [](Damaged& call) { call.fill("conv_v", 0.0F); }),
      misread("state not carried", kLayer, [](Damaged& call) { call.fill("S", 0.0F); }),
      misread("padding not masked", kLayer, [](Damaged& call) { call.fill("mask", 1.0F); }),
      misread("the least probable branches", kLayer,
              [](Damaged& call) { call.each("scores", [](float p) { return 1.0F - p; }); }),
      misread("gates by head, then branch", kLayer,
              [](Damaged& call) {
                const std::int64_t E = call.call.parameter("Es") + candidates_of(call.call);
                transpose_blocks(call.input("A_log"), call.call.parameter("H"), E, 1);
              }),
      misread("expansion of another head", kLayer,
              [](Damaged& call) {
                const std::span<float> x = call.input("q_expansion");
                std::rotate(x.begin(), x.begin() + std::ssize(x) / call.call.parameter("H"), x.end());
              }),
      miswritten("states by head, then window", kLayer,
                 [](Damaged& call) {
                   const std::int64_t heads =
                       (call.call.parameter("Es") + candidates_of(call.call)) * call.call.parameter("H");
                   const std::int64_t size = width_of(call.call) * call.call.parameter("dv");
                   const std::span<float> all = call.output("S");
                   const std::int64_t each = call.call.parameter("N") * heads * size;
                   for (std::int64_t b = 0; b < call.call.batch; ++b) {
                     transpose_blocks(
                         all.subspan(static_cast<std::size_t>(b * each), static_cast<std::size_t>(each)),
                         call.call.parameter("N"), heads, size);
                   }
                 }),
      miswritten("scale of the head and not of the window", kLayer,
                 [](Damaged& call) {
                   const auto w = static_cast<float>(width_of(call.call));
                   const auto d = static_cast<float>(channels_of(call.call));
                   for (float& x : call.output("a")) x *= std::sqrt(w / d);
                 }),
      misread("norm weight as 1 + w", kLayer,
              [](Damaged& call) { call.each("o_norm", [](float w) { return 1.0F + w; }); }),
  });
}

}  // namespace
}  // namespace samestate::planted
