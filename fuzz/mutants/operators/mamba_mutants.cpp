#include "fuzz/mutants/operators/state_space_faults.h"

/// The mixers: M23, M26, M52, M65, M66, M68, M87, and projections, convolutions, steps and norms.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// Moves the first `rows` rows of a weight to the end.
void rotate_rows(Call& c, std::string_view name, std::int64_t rows) {
  rotate(c.input(name), rows * c.width(name));
}
/// Exchanges the two halves of the `rows` rows of a weight that begin at `first`.
void exchange_halves(Call& c, std::string_view name, std::int64_t first, std::int64_t rows) {
  const std::int64_t width = c.width(name);
  rotate(
      c.input(name).subspan(static_cast<std::size_t>(first * width), static_cast<std::size_t>(rows * width)),
      rows / 2 * width);
}

void convolution_state_shifted(Call& c) {
  if (c.call.batch == 1) rotate(c.output("convolution"), c.call.output("convolution").shape.back());
}
void convolution_state_activated(Call& c) {
  for (float& x : c.output("convolution")) x *= sigmoid(x);
}

/// Adds the mutants that both mixers share.
void add_mixer(std::vector<Mutant>& out, const char* kernel, std::string_view state) {
  add_faults(
      out, kernel,
      {early_state(),
       state_not_read(state),
       {"M65", "taps_reversed", "convolution instead of cross-correlation", misread(reversed("conv1d"))},
       {"M66", "convolution_state_not_read", "every call's convolution starts from zero",
        misread(filled("convolution", 0.0F))},
       {"M68", "convolution_state_activated", "activated inputs are stored in the convolution's state",
        miswritten(convolution_state_activated)},
       {"F", "convolution_state_shifted", "the convolution's state is one place ahead",
        miswritten(convolution_state_shifted)},
       {"F", "no_convolution_bias", "the convolution's bias is left out",
        misread(filled("conv1d_bias", 0.0F))},
       no_step_bias(),
       no_skip(),
       chunks_forget(state)});
}

std::int64_t inner(const Call& c) { return c.at("H") * c.at("P"); }

}  // namespace

std::vector<Mutant> mamba_mutants() {
  std::vector<Mutant> out;
  add_mixer(out, "cpu.mamba_mixer.chunked", "h");
  add_faults(out, "cpu.mamba_mixer.chunked",
             {other_discretisation(),
              rate_without_exponential(),
              {"F", "z_before_x", "z comes first in in_proj",
               misread([](Call& c) { rotate_rows(c, "in_proj", c.at("Di")); })},
              {"F", "step_last", "x_proj is read as B, C, dt",
               misread([](Call& c) { rotate_rows(c, "x_proj", 2 * c.at("N")); })},
              {"F", "c_before_b", "C comes before B in x_proj",
               misread([](Call& c) { exchange_halves(c, "x_proj", c.at("R"), 2 * c.at("N")); })}});
  add_mixer(out, "cpu.mamba2_mixer.chunked", "S");
  add_faults(out, "cpu.mamba2_mixer.chunked",
             {next_rate(),
              {"M52", "weight_plus_one", "1 + w where w is meant",
               misread(mapped("norm", [](float w) { return w + 1.0F; }))},
              {"F", "gate_last", "in_proj is read as x, B, C, dt, z",
               misread([](Call& c) { rotate_rows(c, "in_proj", inner(c)); })},
              {"F", "c_before_b", "C comes before B in in_proj", misread([](Call& c) {
                 exchange_halves(c, "in_proj", 2 * inner(c), 2 * c.at("G") * c.at("N"));
               })},
              {"F", "norm_over_half", "the norm's means are over half of the width", misread([](Call& c) {
                 const std::int64_t halves = 2 * c.at("norm_groups");
                 if (inner(c) % halves == 0) c.set("norm_groups", halves);
               })}});
  return out;
}

}  // namespace samestate::mutants
