#include "tests/fuzz/mutants/state_space_faults.h"

namespace samestate {
namespace {

using namespace planted;

/// Rows of a weight, moved to the front by `rows`.
void rows_rotated(Damaged& d, std::string_view name, std::int64_t rows) {
  rotate(d.input(name), rows * d.width(name));
}

TEST(MambaMixerFaults, Die) {
  const char* kernel = "cpu.mamba_mixer.chunked";
  expect_killed({
      misread("z before x in in_proj", kernel,
              [](Damaged& d) { rows_rotated(d, "in_proj", d.call.parameter("Di")); }),
      misread("B, C, dt in x_proj", kernel,
              [](Damaged& d) { rows_rotated(d, "x_proj", 2 * d.call.parameter("N")); }),
      misread("C before B in x_proj", kernel,
              [](Damaged& d) {
                const std::int64_t width = d.width("x_proj");
                const std::int64_t R = d.call.parameter("R");
                rotate(d.input("x_proj").subspan(static_cast<std::size_t>(R * width)),
                       d.call.parameter("N") * width);
              }),
      misread("taps reversed", kernel, taps_reversed),
      misread("no bias of the convolution", kernel, no_convolution_bias),
      misread("the convolution's state not read", kernel, no_convolution_state),
      miswritten("the convolution's state shifted", kernel, convolution_state_shifted),
      miswritten("the convolution's state after silu", kernel, convolution_state_activated),
      misread("no bias of the step", kernel, no_bias),
      misread("A = -A_log", kernel, rate_without_exp),
      misread("no skip", kernel, no_skip),
      misread("hold for Euler, Euler for hold", kernel, other_discretisation),
      misread("the state not read", kernel, [](Damaged& d) { d.fill("h", 0.0F); }),
      early_state(kernel),
      chunks_forget(kernel, "h"),
  });
}

TEST(Mamba2MixerFaults, Die) {
  const char* kernel = "cpu.mamba2_mixer.chunked";
  const auto inner = [](const Damaged& d) { return d.call.parameter("H") * d.call.parameter("P"); };
  expect_killed({
      misread("x, B, C, dt, z in in_proj", kernel,
              [inner](Damaged& d) { rows_rotated(d, "in_proj", inner(d)); }),
      misread("C before B in in_proj", kernel,
              [inner](Damaged& d) {
                const std::int64_t width = d.width("in_proj");
                const std::int64_t GN = d.call.parameter("G") * d.call.parameter("N");
                rotate(d.input("in_proj").subspan(static_cast<std::size_t>(2 * inner(d) * width),
                                                  static_cast<std::size_t>(2 * GN * width)),
                       GN * width);
              }),
      misread("taps reversed", kernel, taps_reversed),
      misread("no bias of the convolution", kernel, no_convolution_bias),
      misread("the convolution's state not read", kernel, no_convolution_state),
      miswritten("the convolution's state shifted", kernel, convolution_state_shifted),
      miswritten("the convolution's state after silu", kernel, convolution_state_activated),
      misread("no bias of the step", kernel, no_bias),
      misread("the rate of the next head", kernel, next_rate),
      misread("no skip", kernel, no_skip),
      misread("the norm's means over half of the width", kernel,
              [inner](Damaged& d) {
                const std::int64_t halves = 2 * d.call.parameter("norm_groups");
                if (inner(d) % halves == 0) d.set("norm_groups", halves);
              }),
      misread("1 + w for w in the norm", kernel,
              [](Damaged& d) { d.each("norm", [](float w) { return w + 1.0F; }); }),
      misread("the state not read", kernel, [](Damaged& d) { d.fill("S", 0.0F); }),
      early_state(kernel),
      chunks_forget(kernel, "S"),
  });
}

}  // namespace
}  // namespace samestate
