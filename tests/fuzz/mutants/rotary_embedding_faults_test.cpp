#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

constexpr const char* kKernel = "cpu.rotary_embedding.full_width";

TEST(RotaryEmbeddingFaults, Die) {
  expect_killed({
      misread("always halves", kKernel, [](Damaged& c) { c.set("interleaved", 0); }),
      misread("always interleaved", kKernel, [](Damaged& c) { c.set("interleaved", 1); }),
      misread("turned the other way", kKernel,
              [](Damaged& c) { c.each("sine", [](float x) { return -x; }); }),
      misread("tables of the token before", kKernel,
              [](Damaged& c) {
                for (const char* name : {"cosine", "sine"}) {
                  const std::span<float> x = c.input(name);
                  const auto n = static_cast<std::ptrdiff_t>(c.width(name));
                  if (std::ssize(x) > n) std::rotate(x.begin(), x.end() - n, x.end());
                }
              }),
      misread("last pair does not turn", kKernel,
              [](Damaged& c) {
                c.groups("cosine", c.width("cosine"), [](std::span<float> x) { x.back() = 1.0F; });
                c.groups("sine", c.width("sine"), [](std::span<float> x) { x.back() = 0.0F; });
              }),
      misread("no rotation", kKernel,
              [](Damaged& c) {
                for (const char* name : {"cosine", "sine"}) c.fill(name, name[0] == 'c' ? 1.0F : 0.0F);
              }),
      miswritten("columns that do not turn are not written", kKernel,
                 [](Damaged& c) {
                   const std::int64_t d = c.call.parameter("d");
                   const std::int64_t turned = 2 * c.call.parameter("pairs");
                   const std::span<float> y = c.output("y");
                   for (std::size_t i = 0; i < y.size(); ++i) {
                     if (static_cast<std::int64_t>(i) % d >= turned) y[i] = 0.0F;
                   }
                 }),
  });
}

}  // namespace
}  // namespace samestate
