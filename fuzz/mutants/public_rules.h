#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "oracles/batch.h"

/// The verdicts of the tests of public kernels on a mutant, with their inputs, shapes and tolerances.
namespace samestate {

/// Which tensor of which form is compared, since some rules differ between them.
struct Compared {
  std::string_view form;    ///< recurrent or chunked
  std::string_view tensor;  ///< o or final_state
};

struct PublicRule {
  std::string_view name;
  std::string_view summary;   ///< the formula
  std::string_view source;    ///< its project, file and commit
  std::string_view contract;  ///< the contract under which the project's test runs the kernel
  bool (*accepts)(std::span<const float> expected, std::span<const float> actual, const Compared&) = nullptr;
};

[[nodiscard]] std::span<const PublicRule> public_rules();

/// Sizes and settings of one test of flash-linear-attention (tests/ops/test_gated_delta.py, commit
/// 0a8cd55da278).
struct PublicShape {
  std::int64_t B = 2, T = 1, H = 2, HV = 2, D = 64;
  double scale = 1.0;
  double gate_logit_normalizer = 1.0;
  double mask_p = 0.0;                ///< share of tokens with g = 0
  std::vector<std::int64_t> offsets;  ///< cu_seqlens if packed; empty if dense
  bool beta_one = false;              ///< beta = 1 (test_chunk); if false, sigmoid(U(0, 1))
  bool initial_state = false;         ///< N(0, 1); if false, zero
};

/// The shapes of test_chunk and test_chunk_varlen, or of test_fused_recurrent.
[[nodiscard]] std::span<const PublicShape> public_shapes(std::string_view form);

/// Their inputs: q, v ~ N(0, 1); k (and q, in the recurrent test) of unit length; g = logsigmoid(U(0, 1)) /
/// gate_logit_normalizer; rounded to the formats of `contract`. Tensors that a system does not read are left
/// out; retention has the gates of RetNet. Throws Error for an unknown system.
[[nodiscard]] Batch public_batch(std::string_view system, std::string_view form, const PublicShape& shape,
                                 const Contract& contract, std::uint64_t seed);

/// The result of one rule on one mutant.
struct PublicVerdict {
  const PublicRule* rule = nullptr;
  std::int64_t tests = 0;         ///< tests that the correct kernel passes
  std::int64_t rejected = 0;      ///< those that the mutant fails
  std::int64_t false_alarms = 0;  ///< tests that the correct kernel fails
  [[nodiscard]] bool killed() const { return rejected > 0; }
};

/// Evaluates the mutant and the correct evaluator on every shape, against the float64 reference, under every
/// rule; if the mutant does not promise a rule's contract, under the first that it promises. A hostile mutant
/// is not run: a test whose process dies or hangs has rejected it. Only for bugs that shipped and subjects
/// that cheat, in the recurrent family; empty for others.
[[nodiscard]] std::vector<PublicVerdict> try_public_rules(const Mutant& mutant, std::uint64_t seed = 42);

}  // namespace samestate
