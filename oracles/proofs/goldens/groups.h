#pragma once

#include "oracles/proofs/goldens/source.h"

/// One check for each kind of group: it runs the reference on the group's inputs, in every form it has, and
/// compares its outputs with the group's; check_backward does the same for the gradients of a group NAME.backward. Each throws
/// Error if the group's tensors are missing or disagree.
namespace samestate {

namespace recurrent_family_golden {
void check(const GoldenSource& source);
void check_backward(const GoldenSource& source);
}  // namespace recurrent_family_golden
namespace norm_golden {
void check(const GoldenSource& source);  ///< gated_rmsnorm, zero_centered_rmsnorm
void check_backward(const GoldenSource& source);
}  // namespace norm_golden
namespace gated_attention_golden {
void check(const GoldenSource& source);  ///< gated_attention
void check_backward(const GoldenSource& source);
}  // namespace gated_attention_golden
namespace latent_attention_golden {
void check(const GoldenSource& source);  ///< mla
void check_backward(const GoldenSource& source);
}  // namespace latent_attention_golden
namespace mixture_of_experts_golden {
void check(const GoldenSource& source);  ///< moe_block
void check_backward(const GoldenSource& source);
}  // namespace mixture_of_experts_golden
namespace mamba_golden {
void check(const GoldenSource& source);  ///< mamba_mixer
void check_backward(const GoldenSource& source);
}  // namespace mamba_golden
namespace mamba2_golden {
void check(const GoldenSource& source);  ///< mamba2_mixer
void check_backward(const GoldenSource& source);
}  // namespace mamba2_golden
namespace gated_delta_net_golden {
void check(const GoldenSource& source);  ///< gdn_layer
void check_backward(const GoldenSource& source);
}  // namespace gated_delta_net_golden

}  // namespace samestate
