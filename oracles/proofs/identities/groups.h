#pragma once

#include <vector>

#include "oracles/proofs/identities/identity.h"

/// The identities of each file of this folder; identities() is all of them.
namespace samestate {

[[nodiscard]] std::vector<Identity> recurrent_family_identities();
[[nodiscard]] std::vector<Identity> test_time_training_identities();
[[nodiscard]] std::vector<Identity> retnet_identities();
[[nodiscard]] std::vector<Identity> gated_delta_net_identities();
[[nodiscard]] std::vector<Identity> norm_identities();
[[nodiscard]] std::vector<Identity> short_convolution_identities();
[[nodiscard]] std::vector<Identity> softmax_attention_identities();
[[nodiscard]] std::vector<Identity> latent_attention_identities();
[[nodiscard]] std::vector<Identity> mixture_of_experts_identities();
[[nodiscard]] std::vector<Identity> selective_scan_identities();
[[nodiscard]] std::vector<Identity> dendritic_attention_identities();
[[nodiscard]] std::vector<Identity> dendritic_invariant_identities();

}  // namespace samestate
