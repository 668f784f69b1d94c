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

namespace recurrent_family_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace test_time_training_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace retnet_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace gated_delta_net_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace gated_delta_step_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace norm_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace short_convolution_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace softmax_attention_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace latent_attention_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace mixture_of_experts_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace selective_scan_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace dendritic_attention_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace dendritic_invariant_identities {
[[nodiscard]] std::vector<Identity> rows();
}
namespace backward_identities {
[[nodiscard]] std::vector<Identity> rows();
}

}  // namespace samestate
