#include <algorithm>
#include <cmath>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/rounding.h"

/// Rules with a decay per key channel: gates, channels, strengths, keys, states and chunks. The bugs of public kernels of
/// Kimi Delta Attention are named in docs/understand/theory/bugs.md.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

constexpr std::string_view kTokens[] = {"q", "k", "v", "g", "beta", "b", "w", "o"};

/// The call on the tokens [begin, begin + n) of its one sequence.
OperatorArguments part_of(OperatorArguments call, std::int64_t begin, std::int64_t n) {
  const auto cut = [&](auto& tensors) {
    for (auto& x : tensors) {
      if (std::ranges::find(kTokens, x.name) == std::end(kTokens)) continue;
      std::int64_t each = 1;
      for (std::size_t d = 2; d < x.shape.size(); ++d) each *= x.shape[d];
      x.data += begin * each;
      x.shape[1] = n;
    }
  };
  cut(call.inputs);
  cut(call.outputs);
  call.tokens = n;
  return call;
}

/// Changes each row of g, the decays of the channels of one head and token.
template <class Function>
Change each_gate(Function f) {
  return [f](Call& c) { each_row(c.input("g"), c.at("dk"), f); };
}

void gate_of_the_neighbour(std::span<float> row) { rotate(row, 1); }
void gate_of_the_first(std::span<float> row) { std::ranges::fill(row, row.front()); }
void gate_of_the_mean(std::span<float> row) {
  float sum = 0.0F;
  for (const float g : row) sum += g;
  std::ranges::fill(row, sum / static_cast<float>(row.size()));
}
void last_channel_undecayed(std::span<float> row) { row.back() = 0.0F; }
/// Sums with base 2 and e^x of them.
void log2_units(std::span<float> row) {
  for (float& g : row) g *= 1.44269504F;
}
void gate_floor(std::span<float> row) {
  for (float& g : row) g = std::max(g, -5.0F);
}
/// a = e^g in bf16: a channel that is to forget a five-hundredth keeps everything.
void decay_in_bf16(std::span<float> row) {
  for (float& g : row) g = std::log(cpu::to_bf16(std::exp(g)));
}
void gate_in_bf16(std::span<float> row) {
  for (float& g : row) g = cpu::to_bf16(g);
}

/// The gates of value head h + 1.
void gate_of_the_next_head(Call& c) {
  each_row(c.input("g"), c.at("Hv") * c.at("dk"), [&](std::span<float> row) { rotate(row, c.at("dk")); });
}
void gate_of_the_first_head(Call& c) {
  const auto dk = static_cast<std::size_t>(c.at("dk"));
  each_row(c.input("g"), c.at("Hv") * c.at("dk"), [&](std::span<float> row) {
    for (std::size_t i = dk; i < row.size(); ++i) row[i] = row[i % dk];
  });
}
/// Key heads are read by value heads in turn, h mod Hk.
void key_heads_tiled(Call& c) {
  const std::int64_t Hk = c.at("Hk"), Hv = c.at("Hv");
  for (const char* name : {"v", "g"}) permute(c.input(name), Hv, c.width(name), [=](std::int64_t h) { return h % (Hv / Hk) * Hk + h / (Hv / Hk); });
}

void second_sigmoid(Call& c) { c.each("beta", sigmoid); }
void strength_in_bf16(Call& c) { c.each("beta", cpu::to_bf16); }

/// u is written without the strength: the value and what is erased are whole.
void strength_of_one(Call& c) { c.fill("beta", 1.0F); }

/// Each state of [dk, dv] is read as [dv, dk]: no shape shows it where dk = dv.
void transposed(std::span<float> states, std::int64_t dk, std::int64_t dv) {
  each_row(states, dk * dv, [=](std::span<float> S) {
    const std::vector<float> old(S.begin(), S.end());
    for (std::int64_t i = 0; i < dk * dv; ++i)
      S[static_cast<std::size_t>(i)] = old[static_cast<std::size_t>(i % dv * dk + i / dv)];
  });
}
void initial_state_transposed(Call& c) { transposed(c.input("state"), c.at("dk"), c.at("dv")); }
void final_state_transposed(Call& c) { transposed(c.output("state"), c.at("dk"), c.at("dv")); }
void state_in_bf16(Call& c) {
  for (float& x : c.output("state")) x = cpu::to_bf16(x);
}

/// The delta is read from the state before it decays: e with e^-g, since S'^T e = S^T (a o e).
void delta_of_the_undecayed(Call& c) {
  const std::span<float> b = c.input("b"), g = c.input("g");
  for (std::size_t i = 0; i < b.size(); ++i) b[i] *= std::exp(std::min(-g[i], 20.0F));
}
/// The write key is b o k too.
void erase_gate_on_the_write(Call& c) {
  // Without grouped heads k has the shape of b.
  if (c.at("Hk") != c.at("Hv")) return;
  const std::span<float> k = c.input("k"), b = c.input("b");
  for (std::size_t i = 0; i < k.size(); ++i) k[i] *= b[i];
  c.fill("b", 1.0F);
}
void erase_gate_of_the_first_channel(Call& c) {
  each_row(c.input("b"), c.at("dk"), [](std::span<float> row) { std::ranges::fill(row, row.front()); });
}
void write_gate_of_the_first_channel(Call& c) {
  each_row(c.input("w"), c.at("dv"), [](std::span<float> row) { std::ranges::fill(row, row.front()); });
}

/// Every chunk begins from zero; the first from the initial state.
CallFault chunks_forgotten() {
  return [](const OperatorKernel& right, Call& c, const Contract& contract) {
    if (c.call.batch != 1 || c.call.chunk < 1 || c.call.tokens <= c.call.chunk) return right.run(c.call, contract);
    Outcome outcome;
    for (std::int64_t t = 0; t < c.call.tokens; t += c.call.chunk) {
      outcome = right.run(part_of(c.call, t, std::min(c.call.chunk, c.call.tokens - t)), contract);
      c.fill("state", 0.0F);
    }
    return outcome;
  };
}

/// The state between chunks is kept in bf16.
CallFault state_between_chunks_in_bf16() {
  return [](const OperatorKernel& right, Call& c, const Contract& contract) {
    if (c.call.batch != 1 || c.call.chunk < 1 || c.call.tokens <= c.call.chunk) return right.run(c.call, contract);
    Outcome outcome;
    for (std::int64_t t = 0; t < c.call.tokens; t += c.call.chunk) {
      outcome = right.run(part_of(c.call, t, std::min(c.call.chunk, c.call.tokens - t)), contract);
      const std::span<float> left = c.output("state"), next = c.input("state");
      std::transform(left.begin(), left.end(), next.begin(), cpu::to_bf16);
    }
    return outcome;
  };
}

CallFault last_token_not_in_the_state() {
  return [](const OperatorKernel& right, Call& c, const Contract& contract) {
    const Outcome outcome = right.run(c.call, contract);
    if (c.call.batch != 1 || c.call.tokens < 1) return outcome;
    return right.run(part_of(c.call, 0, c.call.tokens - 1), contract);
  };
}

/// Each block of 16 tokens of a chunk is a chunk of its own that begins from the state before the chunk: the products
/// between blocks are missing.
CallFault blocks_do_not_meet() {
  return [](const OperatorKernel& right, Call& c, const Contract& contract) {
    if (c.call.batch != 1 || c.call.chunk <= 16 || c.call.tokens <= 16) return right.run(c.call, contract);
    const Outcome outcome = right.run(c.call, contract);
    if (c.call.tokens > c.call.chunk) return outcome;
    const std::span<float> state = c.output("state");
    const std::vector<float> kept(state.begin(), state.end());
    (void)right.run(part_of(c.call, 16, c.call.tokens - 16), contract);
    std::ranges::copy(kept, state.begin());
    return outcome;
  };
}

std::vector<OperatorFault> faults_of_gates() {
  return {{"F", "gate_of_the_next_channel", "each channel decays by its neighbour's gate", misread(each_gate(gate_of_the_neighbour))},
          {"F", "gate_of_the_first_channel", "all channels decay by the first one's gate", misread(each_gate(gate_of_the_first))},
          {"F", "gate_of_a_head", "all channels decay by the mean of their gates", misread(each_gate(gate_of_the_mean))},
          {"F", "last_channel_undecayed", "the last channel does not decay", misread(each_gate(last_channel_undecayed))},
          {"F", "gate_in_log2", "gates in units of log2 are raised with base e", misread(each_gate(log2_units))},
          {"F", "gate_clamped", "gates below -5 are -5", misread(each_gate(gate_floor))},
          {"F", "decay_in_bf16", "decays are rounded to bf16 before the recurrence", misread(each_gate(decay_in_bf16))},
          {"F", "gate_in_bf16", "gates are rounded to bf16", misread(each_gate(gate_in_bf16))},
          {"F", "gate_of_the_next_head", "a head reads the gates of the next one", misread(gate_of_the_next_head)},
          {"F", "gates_of_the_first_head", "all heads read the gates of the first one", misread(gate_of_the_first_head)},
          {"F", "gate_of_the_next_token", "a token reads the gates of the next one", misread(next_token("g"))},
          {"F", "key_heads_tiled", "value head h reads key head h mod Hk", misread(key_heads_tiled)},
          {"F", "state_not_read", "every call starts from zero", misread(filled("state", 0.0F))},
          {"F", "initial_state_transposed", "the initial state is read as [dv, dk]", misread(initial_state_transposed)},
          {"F", "final_state_transposed", "the final state is written as [dv, dk]", miswritten(final_state_transposed)},
          {"F", "final_state_in_bf16", "the final state is rounded to bf16", miswritten(state_in_bf16)},
          {"F", "state_before_the_last_token", "the state that is left lacks the last token", last_token_not_in_the_state()},
          {"F", "without_scale", "the output lacks its factor of dk^-1/2",
           miswritten(scaled("o", [](const Call& c) { return root_of(c.at("dk")); }))}};
}

std::vector<OperatorFault> faults_of_chunks() {
  return {{"F", "chunks_forgotten", "every chunk begins from zero", chunks_forgotten()},
          {"F", "state_between_chunks_in_bf16", "the state is kept in bf16 between chunks", state_between_chunks_in_bf16()},
          {"F", "blocks_do_not_meet", "tokens of a chunk do not see those of its first block of 16", blocks_do_not_meet()}};
}

std::vector<OperatorFault> joined(std::vector<OperatorFault> all, std::vector<OperatorFault> more) {
  for (OperatorFault& fault : more) all.push_back(std::move(fault));
  return all;
}

}  // namespace

std::vector<Mutant> channel_gate_mutants() {
  std::vector<Mutant> out;
  const std::vector<OperatorFault> of_norm = {
      {"F", "without_l2norm", "q and k are not normalised", misread(fixed("l2norm", 0))}};
  const std::vector<OperatorFault> of_strength = {
      {"F", "second_sigmoid", "beta goes through a second sigmoid", misread(second_sigmoid)},
      {"F", "strength_in_bf16", "beta is rounded to bf16", misread(strength_in_bf16)},
      {"F", "strength_of_one", "beta is not read", misread(strength_of_one)}};
  const std::vector<OperatorFault> of_pair = {
      {"F", "delta_of_the_undecayed_state", "the delta is read from the state before its decay", misread(delta_of_the_undecayed)},
      {"F", "erase_gate_on_the_write_key", "b is on the key that is written too", misread(erase_gate_on_the_write)},
      {"F", "erase_gate_of_a_head", "all channels erase by the first one's b", misread(erase_gate_of_the_first_channel)},
      {"F", "write_gate_of_a_head", "all channels write by the first one's w", misread(write_gate_of_the_first_channel)}};
  for (const std::string_view form : {"recurrent", "chunked"}) {
    const bool chunked = form == "chunked";
    const auto add = [&](std::string_view system, std::vector<OperatorFault> faults) {
      if (chunked) faults = joined(std::move(faults), faults_of_chunks());
      add_faults(out, "cpu." + std::string(system) + "." + std::string(form), faults);
    };
    add("kimi_delta_attention", joined(joined(faults_of_gates(), of_norm), of_strength));
    add("gated_delta_net_2", joined(joined(faults_of_gates(), of_norm), of_pair));
    add("gated_linear_attention", faults_of_gates());
  }
  return out;
}

}  // namespace samestate::mutants
