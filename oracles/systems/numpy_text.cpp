#include "oracles/systems/numpy_text.h"

#include <algorithm>

#include "oracles/systems/rows.h"

namespace samestate {
namespace {

std::vector<NumpyText> all_texts() {
  std::vector<NumpyText> all;
  for (const auto make :
       {family_numpy, linear_attention_numpy, state_space_numpy, channel_gate_numpy, activation_gate_numpy, norm_numpy,
        rotary_embedding_numpy, short_convolution_numpy, softmax_attention_numpy, gated_delta_step_numpy}) {
    for (const NumpyText& row : make()) all.push_back(row);
  }
  return all;
}

}  // namespace

std::string_view numpy_text(std::string_view system) {
  static const std::vector<NumpyText> texts = all_texts();
  const auto found = std::ranges::find(texts, system, &NumpyText::system);
  return found == texts.end() ? std::string_view() : found->text;
}

}  // namespace samestate
