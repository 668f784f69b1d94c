#include "fuzz/mutants/public_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "fuzz/mutants/family/fused.h"
#include "fuzz/mutants/family/over_ranks.h"
#include "harness/cases/counter.h"
#include "harness/run/family_run.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

using PublicValues = std::span<const float>;

/// max |e - a|; NaN propagates, as in torch.
double largest_difference(PublicValues expected, PublicValues actual) {
  double largest = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(static_cast<double>(expected[i]) - static_cast<double>(actual[i]));
    if (!(d <= largest)) largest = d;
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

double mean_square(PublicValues expected, PublicValues actual) {
  double sum = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d =
        static_cast<double>(expected[i]) - (actual.empty() ? 0.0 : static_cast<double>(actual[i]));
    sum += d * d;
  }
  return expected.empty() ? 0.0 : sum / static_cast<double>(expected.size());
}

/// fla/utils.py get_err_ratio: RMS(e - a) / (RMS(e) + 1e-8).
double error_ratio(PublicValues expected, PublicValues actual) {
  return std::sqrt(mean_square(expected, actual)) / (std::sqrt(mean_square(expected, {})) + 1e-8);
}

/// tests/ops/test_gated_delta.py: 0.005 for o and ht of the chunked kernel, 0.002 of the fused recurrent one.
double fla_ratio(const Compared& what) { return what.form == "recurrent" ? 0.002 : 0.005; }

/// fla/utils.py assert_close, outside CI: return early at max |e - a| <= 1e-6, else assert error_rate <
/// ratio.
bool fla(PublicValues expected, PublicValues actual, const Compared& what) {
  if (largest_difference(expected, actual) <= 1e-6) return true;
  return error_ratio(expected, actual) < fla_ratio(what);
}

/// The same under FLA_CI_ENV: only a warning where error_rate < 0.01 or max |e - a| <= 0.3.
bool fla_ci(PublicValues expected, PublicValues actual, const Compared& what) {
  const double absolute = largest_difference(expected, actual);
  const double rate = error_ratio(expected, actual);
  if (absolute <= 1e-6 || rate < 0.01 || absolute <= 0.3) return true;
  return rate < fla_ratio(what);
}

/// torch.testing.assert_close: |a - e| <= atol + rtol |e| everywhere; NaN fails.
bool close(PublicValues expected, PublicValues actual, double atol, double rtol) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]);
    if (!(std::abs(static_cast<double>(actual[i]) - e) <= atol + rtol * std::abs(e))) return false;
  }
  return true;
}

/// flashinfer tests/gdn/test_prefill_delta_rule.py, bf16: o 1e-2, 1e-2; state 5e-3, 1e-3.
bool flashinfer(PublicValues expected, PublicValues actual, const Compared& what) {
  return what.tensor == "o" ? close(expected, actual, 1e-2, 1e-2) : close(expected, actual, 5e-3, 1e-3);
}

/// vllm tests/kernels/test_fused_recurrent_packed_decode.py, bf16 and fp16: atol 2e-2, rtol 1e-2.
bool vllm(PublicValues expected, PublicValues actual, const Compared&) {
  return close(expected, actual, 2e-2, 1e-2);
}

/// llama.cpp tests/test-backend-ops.cpp: nmse = MSE(e, a) / MSE(e, 0) <= 1e-7 (test_case::max_nmse_err); NaN
/// fails.
bool nmse(PublicValues expected, PublicValues actual, const Compared&) {
  const double power = mean_square(expected, {});
  const double error = mean_square(expected, actual);
  return error == 0.0 || error / power <= 1e-7;
}

constexpr PublicRule kRules[] = {
    {"fla", "RMS(e - a) < 0.005 RMS(e) (0.002 recurrent), or max |e - a| <= 1e-6",
     "flash-linear-attention fla/utils.py, tests/ops/test_gated_delta.py at 0a8cd55da278", "fp16", fla},
    {"fla_ci", "the same; in CI only where RMS(e - a) >= 0.01 RMS(e) and max |e - a| > 0.3",
     "flash-linear-attention fla/utils.py at 0a8cd55da278, FLA_CI_ENV", "fp16", fla_ci},
    {"flashinfer", "|a - e| <= 1e-2 + 1e-2 |e|; of the state 5e-3 + 1e-3 |e|",
     "flashinfer tests/gdn/test_prefill_delta_rule.py, bf16", "bf16", flashinfer},
    {"vllm", "|a - e| <= 2e-2 + 1e-2 |e|",
     "vllm tests/kernels/test_fused_recurrent_packed_decode.py at 202c2b6745e2", "bf16", vllm},
    {"nmse", "MSE(e, a) <= 1e-7 MSE(e, 0)", "llama.cpp tests/test-backend-ops.cpp, max_nmse_err", "fp32",
     nmse},
};

/// Draws [T, ...] token by token: row-major rows of `width` values, each made by make(row, coordinates).
template <class Make>
std::vector<float> drawn(const BatchShape& s, std::int64_t H, std::int64_t width, Format format,
                         Make&& make) {
  std::vector<float> out;
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t t = 0; t < s.T; ++t) {
      for (std::int64_t h = 0; h < H; ++h) {
        make(row, Coordinates{b, t, h, 0});
        for (double x : row) out.push_back(static_cast<float>(round_to(x, format)));
      }
    }
  }
  return out;
}

auto normals(const Counter& counter, bool unit_length) {
  return [&counter, unit_length](std::vector<double>& row, Coordinates at) {
    double sum = 0.0;
    for (double& x : row) {
      x = counter.normal(at);
      sum += x * x;
      ++at.channel;
    }
    if (!unit_length) return;
    for (double& x : row) x /= std::sqrt(sum);
  };
}

/// Runs the reference in float64, rounded to fp32.
Outputs reference_outputs(const Family& family, const Batch& batch) {
  const BatchShape& s = batch.shape;
  Outputs out;
  out.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
  for (std::int64_t n = 0; n < s.sequences(); ++n) {
    const std::int64_t row = s.offsets.empty() ? n * s.T : s.begin(n);
    for (std::int64_t h = 0; h < s.Hv; ++h) {
      const Trajectory<double> y = family.recurrent(sequence_of(batch, n, h));
      for (Index t = 0; t < y.o.rows(); ++t) {
        for (Index c = 0; c < s.dv; ++c) {
          out.o[static_cast<std::size_t>(((row + t) * s.Hv + h) * s.dv + c)] = static_cast<float>(y.o(t, c));
        }
      }
      for (Index i = 0; i < y.state.size(); ++i)
        out.final_state.push_back(static_cast<float>(y.state.data()[i]));
    }
  }
  return out;
}

/// A test of the correct evaluator, which all mutants of a system, form and contract share.
struct Test {
  Batch batch;
  Outputs expected;
  Outputs correct;
};

Outputs run_whole_batch(const Kernel& kernel, const Batch& batch, const Contract& contract) {
  const KernelRow row = adapted(kernel);
  const Index chunk = kernel.form == "recurrent" ? 0 : 64;  // FLA's chunk
  const Path path = whole(batch.shape.T, chunk, {kernel.form == mutants::OverRanks::form ? 2 : 1});
  return run_kernel({&row, &row, &row}, batch, path, contract, {});
}

const std::vector<Test>& tests_of(const std::string& system, const std::string& form,
                                  const Contract& contract, std::uint64_t seed) {
  static std::mutex guard;
  static std::map<std::tuple<std::string, std::string, std::string, std::uint64_t>, std::vector<Test>> made;
  const std::lock_guard lock(guard);
  std::vector<Test>& tests = made[{system, form, contract.name, seed}];
  if (!tests.empty()) return tests;
  const KernelTable table(unmutated_kernels());
  const Kernel& kernel =
      table.named((mutants::is_fused(contract) ? "evaluator_fused." : "evaluator.") + system + "." + form);
  const Family& family = family_named(system);
  for (const PublicShape& shape : public_shapes(form)) {
    Test test;
    test.batch = public_batch(system, form, shape, contract, seed);
    test.expected = reference_outputs(family, test.batch);
    test.correct = run_whole_batch(kernel, test.batch, contract);
    tests.push_back(std::move(test));
  }
  return tests;
}

bool accepts(const PublicRule& rule, const std::string& form, const Outputs& expected,
             const Outputs& actual) {
  return rule.accepts(expected.o, actual.o, {form, "o"}) &&
         rule.accepts(expected.final_state, actual.final_state, {form, "final_state"});
}

}  // namespace

std::span<const PublicRule> public_rules() { return kRules; }

std::span<const PublicShape> public_shapes(std::string_view form) {
  //  B, T, H, HV, D, scale, gate_logit_normalizer, mask_p, cu_seqlens, beta = 1, initial state
  static const std::vector<PublicShape> chunked = {
      {2, 1, 2, 2, 64, 1.0, 1.0, 0.0, {}, true, false},
      {2, 15, 2, 2, 64, 1.0, 1.0, 0.0, {}, true, false},
      {2, 63, 2, 2, 32, 1.0, 1.0, 0.0, {}, true, false},
      {2, 300, 2, 2, 64, 1.0, 1.0, 0.0, {}, true, false},
      {2, 300, 2, 2, 100, 0.1, 0.1, 0.0, {}, true, false},
      {2, 300, 2, 2, 64, 1.0, 10.0, 0.5, {}, true, false},
      {2, 63, 2, 2, 100, 0.1, 10.0, 0.5, {}, true, false},
      {1, 1000, 2, 2, 128, 1.0, 1.0, 0.5, {0, 122, 229, 400, 1000}, false, true},
  };
  static const std::vector<PublicShape> recurrent = {
      {2, 1, 2, 4, 64, 1.0, 1.0, 0.0, {}, false, true},   {2, 15, 2, 4, 64, 1.0, 0.1, 0.0, {}, false, true},
      {2, 63, 2, 4, 100, 1.0, 1.0, 0.0, {}, false, true}, {2, 300, 2, 4, 64, 1.0, 10.0, 0.0, {}, false, true},
      {2, 300, 2, 4, 32, 1.0, 1.0, 0.0, {}, false, true},
  };
  return form == "recurrent" ? recurrent : chunked;
}

Batch public_batch(std::string_view system, std::string_view form, const PublicShape& shape,
                   const Contract& contract, std::uint64_t seed) {
  const Family& family = family_named(system);
  Batch batch;
  BatchShape& s = batch.shape;
  s = {shape.B,
       shape.T,
       shape.H,
       shape.HV,
       shape.D,
       shape.D,
       shape.offsets,
       HeadMap::interleaved,
       static_cast<double>(static_cast<float>(shape.scale)),
       false,
       shape.initial_state};
  const Counter q(seed, "q"), k(seed, "k"), v(seed, "v"), g(seed, "g"), mask(seed, "mask"),
      beta(seed, "beta"), state(seed, "h0");
  batch.q = drawn(s, s.Hk, s.dk, contract.input, normals(q, form == "recurrent"));
  batch.k = drawn(s, s.Hk, s.dk, contract.input, normals(k, true));
  batch.v = drawn(s, s.Hv, s.dv, contract.input, normals(v, false));
  if (family.gated) {
    batch.g = drawn(s, s.Hv, 1, Format::fp32, [&](std::vector<double>& row, const Coordinates& at) {
      row[0] = -std::log1p(std::exp(-g.uniform(at))) / shape.gate_logit_normalizer;
      if (shape.mask_p > 0.0 && mask.uniform(at) <= shape.mask_p) row[0] = 0.0;
      if (!family.delta) row[0] = std::log1p(-std::exp2(-5.0 - static_cast<double>(at.head)));
    });
  }
  if (family.delta) {
    batch.beta = drawn(s, s.Hv, 1, contract.input, [&](std::vector<double>& row, const Coordinates& at) {
      row[0] = shape.beta_one ? 1.0 : 1.0 / (1.0 + std::exp(-beta.uniform(at)));
    });
  }
  if (shape.initial_state) {
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t i = 0; i < s.Hv * s.dk * s.dv; ++i)
        batch.initial_state.push_back(static_cast<float>(state.normal({n, i, 0, 0})));
    }
  }
  return batch;
}

namespace {

/// Returns the rule's own contract, its counterpart for the fused kernels, or the kernel's first.
std::string contract_for(const PublicRule& rule, const Kernel& kernel) {
  const std::string own(rule.contract);
  for (const std::string& name : {own, own + "_fused"}) {
    if (std::find(kernel.contracts.begin(), kernel.contracts.end(), name) != kernel.contracts.end())
      return name;
  }
  return kernel.contracts.front();
}

}  // namespace

std::vector<PublicVerdict> try_public_rules(const Mutant& mutant, std::uint64_t seed) {
  std::vector<PublicVerdict> verdicts;
  if (mutant.rows.empty() || mutant.bug == "F") return verdicts;
  const Kernel& kernel = mutant.rows.front();
  // outputs of the mutant, by contract
  std::map<std::string, std::vector<Outputs>> ran;
  for (const PublicRule& rule : kRules) {
    const Contract& contract = contract_named(contract_for(rule, kernel));
    const std::vector<Test>& tests = tests_of(mutant.system, mutant.form, contract, seed);
    std::vector<Outputs>& outputs = ran[contract.name];
    PublicVerdict verdict;
    verdict.rule = &rule;
    for (std::size_t i = 0; i < tests.size(); ++i) {
      if (outputs.size() <= i) {
        try {
          outputs.push_back(mutant.hostile ? Outputs{} : run_whole_batch(kernel, tests[i].batch, contract));
        } catch (const std::exception&) {
          outputs.push_back({});  // it threw, or accessed foreign memory, which torch would not see
        }
      }
      if (!accepts(rule, mutant.form, tests[i].expected, tests[i].correct)) {
        ++verdict.false_alarms;
        continue;
      }
      ++verdict.tests;
      const bool returned = outputs[i].o.size() == tests[i].expected.o.size();
      if (!returned || !accepts(rule, mutant.form, tests[i].expected, outputs[i])) ++verdict.rejected;
    }
    verdicts.push_back(verdict);
  }
  return verdicts;
}

}  // namespace samestate
