#include <algorithm>

#include "fuzz/mutants/operators/changed_call.h"

/// The short convolution: M63-M68, and taps, bias and activation.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

void short_call_keeps_state(Call& c) {
  if (c.call.tokens < c.at("W") - 1) std::ranges::copy(c.input("state"), c.output("state").begin());
}
void one_vector_of_state(Call& c) {
  const std::int64_t C = c.at("C");
  each_row(c.output("state"), (c.at("W") - 1) * C,
           [C](std::span<float> state) { std::fill(state.begin(), state.end() - C, 0.0F); });
}
/// Every sequence starts from the last inputs of the sequence before it.
void state_leaks(Call& c) {
  const std::int64_t C = c.at("C");
  const std::int64_t rows = c.at("W") - 1;
  const std::int64_t T = c.call.tokens;
  const std::span<float> x = c.input("x");
  const std::span<float> state = c.input("state");
  for (std::int64_t b = 1; b < c.call.batch && T >= rows; ++b)
    std::copy_n(x.begin() + (b * T - rows) * C, rows * C, state.begin() + b * rows * C);
}
void activated_state(Call& c) {
  const std::int64_t C = c.at("C");
  const std::int64_t rows = c.at("W") - 1;
  const std::int64_t T = c.call.tokens;
  for (std::int64_t b = 0; b < c.call.batch && T >= rows; ++b)
    std::copy_n(c.output("y").begin() + ((b + 1) * T - rows) * C, rows * C,
                c.output("state").begin() + b * rows * C);
}
void oldest_tap_dropped(Call& c) {
  each_row(c.input("kernel"), c.width("kernel"), [](std::span<float> w) { w[0] = 0.0F; });
}
void no_bias(Call& c) {
  if (c.at("bias") != 0) c.fill("bias", 0.0F);
}
void state_of_the_token_before(Call& c) {
  const std::span<float> state = c.output("state");
  if (std::ssize(state) > c.at("C")) rotate(state, std::ssize(state) - c.at("C"));
}

}  // namespace

std::vector<Mutant> short_convolution_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.short_convolution.scatter",
      {{"M63", "short_call_keeps_state", "T < W - 1 leaves the state as it was",
        miswritten(short_call_keeps_state)},
       {"M64", "one_vector_of_state", "one vector is kept instead of W - 1", miswritten(one_vector_of_state)},
       {"M65", "taps_reversed", "convolution instead of cross-correlation", misread(reversed("kernel"))},
       {"M66", "state_not_read", "the fast path, although a state is given", misread(filled("state", 0.0F))},
       {"M67", "state_leaks", "a sequence starts from the inputs of the one before it", misread(state_leaks)},
       {"M68", "activated_state", "outputs are stored in the state instead of inputs",
        miswritten(activated_state)},
       {"F", "oldest_tap_dropped", "the oldest tap is not multiplied", misread(oldest_tap_dropped)},
       {"F", "no_bias", "the bias is left out", misread(no_bias)},
       {"F", "always_activated", "silu where none is asked for", misread(fixed("activation", 1))},
       {"F", "never_activated", "no silu where one is asked for", misread(fixed("activation", 0))},
       {"F", "state_of_the_token_before", "the state lacks the last input",
        miswritten(state_of_the_token_before)}});
  return out;
}

}  // namespace samestate::mutants
