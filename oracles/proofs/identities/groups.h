#pragma once

#include <vector>

#include "oracles/proofs/identities/identity.h"
#include "reference/scalars.h"

/// The identities of each file of this folder, one row each: what is claimed and how it is computed.
/// identities() has all of them.
namespace samestate {

template <class Computation>
Residual::Residual(Computation)
    : Residual([](std::uint64_t seed) { return Computation{}.template operator()<double>(seed); },
               [](std::uint64_t seed) { return Computation{}.template operator()<Decimal50>(seed); }) {}

[[nodiscard]] std::vector<Identity> recurrent_family_identities();
[[nodiscard]] std::vector<Identity> test_time_training_identities();
[[nodiscard]] std::vector<Identity> retnet_identities();
[[nodiscard]] std::vector<Identity> gated_delta_net_identities();
[[nodiscard]] std::vector<Identity> gated_delta_step_identities();
[[nodiscard]] std::vector<Identity> norm_identities();
[[nodiscard]] std::vector<Identity> short_convolution_identities();
[[nodiscard]] std::vector<Identity> softmax_attention_identities();
[[nodiscard]] std::vector<Identity> latent_attention_identities();
[[nodiscard]] std::vector<Identity> mixture_of_experts_identities();
[[nodiscard]] std::vector<Identity> selective_scan_identities();
[[nodiscard]] std::vector<Identity> dendritic_attention_identities();
[[nodiscard]] std::vector<Identity> dendritic_invariant_identities();
[[nodiscard]] std::vector<Identity> backward_identities();

}  // namespace samestate
