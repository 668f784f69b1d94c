#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/state_space_faults.h"

/// Scans: M23, M26, M31, M33, M87, M88, and steps, rates and states.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

constexpr std::string_view kTokenTensors[] = {"u", "dt", "B", "C", "z", "x", "hidden", "out", "y"};

/// Returns the call on the tokens [begin, begin + n) of its one sequence.
OperatorArguments tokens_of(OperatorArguments call, std::int64_t begin, std::int64_t n) {
  const auto cut = [&](auto& tensors) {
    for (auto& tensor : tensors) {
      if (std::ranges::find(kTokenTensors, tensor.name) == std::end(kTokenTensors)) continue;
      tensor.data += begin * tensor.shape.back();
      tensor.shape[1] = n;
    }
  };
  cut(call.inputs);
  cut(call.outputs);
  call.tokens = n;
  return call;
}

float softplus(float x) { return std::log1p(std::exp(-std::fabs(x))) + std::fmax(x, 0.0F); }

/// The kernel reads what is already the step, less the bias that it will add.
void softplus_twice(Call& c) {
  const std::span<float> bias = c.input("dt_bias");
  each_row(c.input("dt"), std::ssize(bias), [&](std::span<float> row) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = softplus(row[i] + bias[i]) - bias[i];
  });
}

/// Finds the x' whose softplus is log(1 + exp(x)) in fp32: 1 + exp(x) loses most of a small step.
void softplus_by_logarithm(Call& c) {
  const std::span<float> bias = c.input("dt_bias");
  each_row(c.input("dt"), std::ssize(bias), [&](std::span<float> row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const float x = row[i] + bias[i];
      if (x > 0.0F) continue;
      const auto step = static_cast<double>(std::log(1.0F + std::exp(x)));
      // If the 1 swallows all of exp(x) the step is zero, and -1000 also gives zero; e^-100 times a large x
      // would not be.
      row[i] = (step > 0.0 ? static_cast<float>(std::log(std::expm1(step))) : -1000.0F) - bias[i];
    }
  });
}

void skip_after_gate(Call& c) {
  const std::span<float> out = c.output("out");
  const std::size_t D = c.input("skip").size();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float gate = c.input("z")[i] * sigmoid(c.input("z")[i]);
    out[i] += (1.0F - gate) * c.input("skip")[i % D] * c.input("u")[i];
  }
}
/// The gate is sigma(z), not z sigma(z).
void gate_without_z(Call& c) {
  const std::span<float> out = c.output("out");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] /= c.input("z")[i];
}

/// Head h reads group h mod G: the columns of a group are copied for every head, with as many groups as
/// heads.
Outcome groups_tiled(const OperatorKernel& right, Call& c, const Contract& contract) {
  const std::int64_t H = c.at("H"), G = c.at("G"), N = c.at("N");
  std::vector<float> wide[2];
  for (const int i : {0, 1}) {
    const std::string_view name = i == 0 ? "B" : "C";
    each_row(c.input(name), G * N, [&](std::span<float> row) {
      for (std::int64_t h = 0; h < H; ++h) {
        const auto from = row.begin() + h % G * N;
        wide[i].insert(wide[i].end(), from, from + N);
      }
    });
    wide[i].push_back(0.0F);
    for (auto& tensor : c.call.inputs) {
      if (tensor.name != name) continue;
      tensor.data = wide[i].data();
      tensor.shape.back() = H * N;
    }
  }
  c.set("G", H);
  return right.run(c.call, contract);
}

/// If the last chunk is full and longer than a tile of 64, what is left of its initial state decays by one
/// token too few.
Outcome full_last_chunk_decays_short(const OperatorKernel& right, Call& c, const Contract& contract) {
  const std::int64_t H = c.at("H"), width = c.at("P") * c.at("N"), T = c.call.tokens;
  const std::span<float> before = c.input("S"), dt = c.input("dt"), bias = c.input("dt_bias"),
                         rate = c.input("A_log"), S = c.output("S");
  const Outcome outcome = right.run(c.call, contract);
  if (T < 1 || T != c.call.chunk || c.call.chunk <= 64) return outcome;
  for (std::int64_t head = 0; head < c.call.batch * H; ++head) {
    float decay = 0.0F, last = 0.0F;
    for (std::int64_t t = 0; t < T; ++t) {
      const auto h = static_cast<std::size_t>(head % H);
      last = softplus(dt[static_cast<std::size_t>((head / H * T + t) * H) + h] + bias[h]) * std::exp(rate[h]);
      decay -= last;
    }
    for (std::int64_t i = head * width; i < (head + 1) * width; ++i)
      S[static_cast<std::size_t>(i)] +=
          before[static_cast<std::size_t>(i)] * std::exp(decay) * std::expm1(last);
  }
  return outcome;
}

/// States are [N, P] where [P, N] is promised.
void state_transposed(Call& c) {
  const std::int64_t P = c.at("P"), N = c.at("N");
  each_row(c.output("S"), P * N, [=](std::span<float> head) {
    permute(head, P * N, 1, [=](std::int64_t i) { return i % P * N + i / P; });
  });
}

}  // namespace

OperatorFault chunks_forget(std::string_view state) {
  return {"F", "chunks_forgotten", "every chunk begins from zero",
          [state](const OperatorKernel& right, Call& c, const Contract& contract) {
            if (c.call.batch != 1 || c.call.tokens <= c.call.chunk) return right.run(c.call, contract);
            Outcome outcome;
            for (std::int64_t t = 0; t < c.call.tokens; t += c.call.chunk) {
              outcome = right.run(tokens_of(c.call, t, std::min(c.call.chunk, c.call.tokens - t)), contract);
              c.fill(state, 0.0F);
            }
            return outcome;
          }};
}

OperatorFault early_state() {
  return {"M23", "state_before_last_token", "the state that is left lacks the last token",
          [](const OperatorKernel& right, Call& c, const Contract& contract) {
            const Outcome outcome = right.run(c.call, contract);
            if (c.call.batch != 1 || c.call.tokens < 1) return outcome;
            return right.run(tokens_of(c.call, 0, c.call.tokens - 1), contract);
          }};
}

OperatorFault state_not_read(std::string_view state) {
  return {"M26", "state_not_read", "every call starts from zero", misread(filled(state, 0.0F))};
}
OperatorFault no_step_bias() {
  return {"F", "no_step_bias", "dt_bias is left out", misread(filled("dt_bias", 0.0F))};
}
OperatorFault no_skip() { return {"F", "no_skip", "D u is left out", misread(filled("skip", 0.0F))}; }
OperatorFault other_discretisation() {
  return {"M87", "other_discretisation", "Euler for zero-order hold, zero-order hold for Euler",
          misread([](Call& c) { c.set("hold", 1 - c.at("hold")); })};
}
OperatorFault rate_without_exponential() {
  return {"F", "rate_without_exponential", "A = -A_log",
          misread(mapped("A_log", [](float a) { return std::log(std::fabs(a) + 1e-3F); }))};
}
OperatorFault next_rate() {
  return {"F", "rate_of_the_next_head", "the rates are those of the next channel or head",
          misread([](Call& c) {
            const bool by_head = c.call.input("A_log").shape.size() == 1;
            rotate(c.input("A_log"), by_head ? 1 : c.width("A_log"));
          })};
}

std::vector<Mutant> state_space_mutants() {
  std::vector<Mutant> out;
  const OperatorFault twice = {"F", "softplus_twice", "the step is activated twice", misread(softplus_twice)};
  const OperatorFault by_logarithm = {"F", "softplus_by_logarithm",
                                      "softplus is log(1 + exp(x)): wrong by 1e-3 at x = -9",
                                      misread(softplus_by_logarithm)};
  const OperatorFault b_and_c = {"F", "b_and_c_exchanged", "B is taken for C and C for B",
                                 misread(exchanged("B", "C"))};
  for (const char* kernel : {"cpu.selective_scan.chunked", "cpu.selective_scan.blelloch"}) {
    add_faults(out, kernel,
               {{"M87", "euler", "Euler where zero-order hold is meant", misread(fixed("hold", 0))},
                {"M88", "skip_after_gate", "D u is added after the gate", miswritten(skip_after_gate)},
                other_discretisation(),
                state_not_read("h"),
                early_state(),
                no_step_bias(),
                twice,
                by_logarithm,
                rate_without_exponential(),
                next_rate(),
                no_skip(),
                {"F", "gate_without_z", "the gate is sigma(z), not z sigma(z)", miswritten(gate_without_z)},
                b_and_c});
  }
  add_faults(out, "cpu.selective_scan.chunked", {chunks_forget("h")});
  add_faults(
      out, "cpu.state_space_duality.chunked",
      {{"M31", "other_head_map", "head h reads group h mod G", groups_tiled},
       {"M33", "state_transposed", "the state is written as [N, P]", miswritten(state_transposed)},
       {"F", "full_last_chunk_decays_short",
        "T = chunk > 64: the state that is given decays by one token too few", full_last_chunk_decays_short},
       state_not_read("S"),
       early_state(),
       no_step_bias(),
       twice,
       by_logarithm,
       rate_without_exponential(),
       next_rate(),
       no_skip(),
       b_and_c,
       chunks_forget("S")});
  for (Mutant& m : out) {
    if (m.fault == by_logarithm.fault) m.equivalent = "no bound forbids a softplus that adds the 1";
  }
  return out;
}

}  // namespace samestate::mutants
