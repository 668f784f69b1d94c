#pragma once

#include "oracles/proofs/goldens/source.h"

/// One check for each kind of group: it runs the reference on the group's inputs, in every form it has, and
/// compares its outputs with the group's. Each throws Error if the group's tensors are missing or disagree.
namespace samestate {

namespace recurrent_family_golden {
void check(const GoldenSource& source);
}
namespace norm_golden {
void check(const GoldenSource& source);  ///< gated_rmsnorm, zero_centered_rmsnorm
}
namespace gated_attention_golden {
void check(const GoldenSource& source);  ///< gated_attention
}
namespace latent_attention_golden {
void check(const GoldenSource& source);  ///< mla
}
namespace mixture_of_experts_golden {
void check(const GoldenSource& source);  ///< moe_block
}
namespace mamba_golden {
void check(const GoldenSource& source);  ///< mamba_mixer
}
namespace mamba2_golden {
void check(const GoldenSource& source);  ///< mamba2_mixer
}
namespace gated_delta_net_golden {
void check(const GoldenSource& source);  ///< gdn_layer
}

}  // namespace samestate
