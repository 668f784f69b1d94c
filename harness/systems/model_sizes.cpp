#include "harness/systems/model_sizes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace samestate {
namespace {

using Sizes = std::vector<std::pair<std::string_view, std::int64_t>>;

/// The sizes of one layer on one device.
class Layer {
 public:
  Layer(const Model& model, const Model::Facts& facts, std::int64_t divided)
      : model_(model), facts_(facts), divided_(divided) {}

  /// Returns a fact as the configuration states it; 0 if it does not.
  [[nodiscard]] std::int64_t at(std::string_view fact) const {
    const auto found = facts_.find(fact);
    return found == facts_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::int64_t hidden() const { return model_.hidden; }
  /// Returns the device's part of something that the layer divides. If the division leaves a remainder,
  /// whole() becomes false.
  [[nodiscard]] std::int64_t part(std::string_view fact) const {
    if (at(fact) % divided_ != 0) whole_ = false;
    return at(fact) / divided_;
  }
  /// Returns the device's part of something of which every device needs at least one: key heads and groups
  /// are copied if there are too few.
  [[nodiscard]] std::int64_t shared(std::string_view fact) const {
    return at(fact) % divided_ == 0 ? at(fact) / divided_ : std::max<std::int64_t>(at(fact) / divided_, 1);
  }
  [[nodiscard]] bool whole() const { return whole_; }

 private:
  const Model& model_;
  const Model::Facts& facts_;
  std::int64_t divided_;
  mutable bool whole_ = true;
};

/// How a layer of a kind contains a system; `only` is a fact that must not be 0.
struct Part {
  std::string_view system, layer;
  Sizes (*sizes)(const Layer&);
  std::string_view only = {};
};

Sizes delta_heads(const Layer& of) {
  return {
      {"Hk", of.part("key_heads")}, {"Hv", of.part("value_heads")}, {"dk", of.at("dk")}, {"dv", of.at("dv")}};
}
Sizes equal_heads(const Layer& of) {
  return {{"Hk", of.part("heads")}, {"Hv", of.part("heads")}, {"dk", of.at("dk")}, {"dv", of.at("dv")}};
}
Sizes head_sizes(const Layer& of) {
  return {{"H", of.part("heads")}, {"dk", of.at("dk")}, {"dv", of.at("dv")}};
}
Sizes residual_row(const Layer& of) { return {{"H", 1}, {"D", of.hidden()}}; }
Sizes head_rows(const Layer& of) { return {{"H", of.part("heads")}, {"D", of.at("d")}}; }
Sizes routed(const Layer& of) { return {{"D", of.hidden()}, {"N", of.at("N")}, {"K", of.at("K")}}; }
Sizes experts(const Layer& of) {
  Sizes sizes = routed(of);
  sizes.emplace_back("F", of.part("F"));
  return sizes;
}
Sizes ssd(const Layer& of) {
  return {{"H", of.part("heads")}, {"G", of.shared("groups")}, {"P", of.at("P")}, {"N", of.at("N")}};
}
Sizes widths(const Layer& of) { return {{"dk", of.at("dk")}, {"dv", of.at("dv")}}; }

constexpr std::array kParts{
    Part{"gated_delta_rule", "delta", delta_heads},
    Part{"delta_rule", "delta", delta_heads},
    Part{"gated_delta_net", "delta",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()},
                   {"Hk", of.part("key_heads")},
                   {"R", of.at("value_heads") / of.at("key_heads")},
                   {"dk", of.at("dk")},
                   {"dv", of.at("dv")},
                   {"W", of.at("conv")}};
         }},
    Part{"gated_delta_net_output", "delta",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()}, {"Hv", of.part("value_heads")}, {"dv", of.at("dv")}};
         }},
    Part{"gated_delta_step", "delta", delta_heads},
    Part{"short_convolution", "delta",
         [](const Layer& of) -> Sizes {
           return {{"C", 2 * of.part("key_heads") * of.at("dk") + of.part("value_heads") * of.at("dv")},
                   {"W", of.at("conv")},
                   {"bias", 0}};
         }},
    Part{"l2norm", "delta",
         [](const Layer& of) -> Sizes {
           return {{"H", of.part("key_heads")}, {"D", of.at("dk")}};
         }},
    Part{"gated_rms_norm", "delta",
         [](const Layer& of) -> Sizes {
           return {{"H", of.part("value_heads")}, {"D", of.at("dv")}};
         }},
    Part{"activation_gates", "delta",
         [](const Layer& of) -> Sizes {
           return {{"H", of.part("value_heads")}};
         }},
    Part{"zero_centred_rms_norm", "delta", residual_row},
    Part{"residual_rms_norm", "delta", residual_row},
    Part{
        "softmax_attention", "attention",
        [](const Layer& of) -> Sizes {
          return {
              {"H", of.part("heads")}, {"Hkv", of.shared("kv_heads")}, {"d", of.at("d")}, {"dv", of.at("d")}};
        }},
    Part{"gated_attention", "attention",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()},
                   {"H", of.part("heads")},
                   {"Hkv", of.shared("kv_heads")},
                   {"d", of.at("d")},
                   {"pairs", of.at("rotary") / 2}};
         },
         "gate"},
    Part{"rotary_embedding", "attention",
         [](const Layer& of) -> Sizes {
           return {{"H", of.part("heads")}, {"d", of.at("d")}, {"pairs", of.at("rotary") / 2}};
         },
         "rotary"},
    Part{"zero_centred_rms_norm", "attention", head_rows, "gate"},
    Part{"rms_norm", "attention", head_rows, "qk_norm"},
    Part{"rms_norm", "attention", residual_row},
    Part{"residual_rms_norm", "attention", residual_row},
    Part{"zero_centred_rms_norm", "attention", residual_row, "gate"},
    Part{"latent_attention", "latent",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()},         {"H", of.part("heads")}, {"dn", of.at("dn")},
                   {"dr", of.at("dr")},        {"dv", of.at("dv")},     {"dc", of.at("dc")},
                   {"q_lora", of.at("q_lora")}};
         }},
    Part{"latent_cache", "latent",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()}, {"dc", of.at("dc")}, {"dr", of.at("dr")}};
         }},
    Part{"softmax_attention", "latent",
         [](const Layer& of) -> Sizes {
           return {{"H", of.part("heads")},
                   {"Hkv", of.part("heads")},
                   {"d", of.at("dn") + of.at("dr")},
                   {"dv", of.at("dv")}};
         }},
    Part{"rotary_embedding", "latent",
         [](const Layer& of) -> Sizes {
           return {
               {"H", of.part("heads")}, {"d", of.at("dr")}, {"pairs", of.at("dr") / 2}, {"interleaved", 1}};
         },
         "dr"},
    Part{"rms_norm", "latent",
         [](const Layer& of) -> Sizes {
           return {{"H", 1}, {"D", of.at("dc")}};
         }},
    Part{"rms_norm", "latent", residual_row},
    Part{"rms_norm", "latent",
         [](const Layer& of) -> Sizes {
           return {{"H", 1}, {"D", of.at("q_lora")}};
         },
         "q_lora"},
    Part{"residual_rms_norm", "latent", residual_row},
    Part{"expert_router", "experts",
         [](const Layer& of) -> Sizes {
           Sizes sizes = routed(of);
           sizes.emplace_back("bias", of.at("bias"));
           return sizes;
         }},
    Part{"group_limited_router", "experts",
         [](const Layer& of) -> Sizes {
           Sizes sizes = routed(of);
           sizes.insert(sizes.end(), {{"G", of.at("groups")}, {"M", of.at("kept")}, {"bias", of.at("bias")}});
           return sizes;
         },
         "groups"},
    Part{"load_balance", "experts",
         [](const Layer& of) -> Sizes {
           return {{"N", of.at("N")}, {"K", of.at("K")}};
         }},
    Part{"mixture_of_experts", "experts", experts},
    Part{"qwen3_next_moe", "experts",
         [](const Layer& of) -> Sizes {
           Sizes sizes = experts(of);
           sizes.emplace_back("Fs", of.part("Fs"));
           return sizes;
         },
         "Fs"},
    Part{"retention", "retention", equal_heads},
    Part{"normalised_retention", "retention", head_sizes},
    Part{"normalised_retention_recurrence", "retention", head_sizes},
    Part{"multi_scale_retention", "retention",
         [](const Layer& of) -> Sizes {
           Sizes sizes = head_sizes(of);
           sizes.emplace_back("D", of.hidden());
           return sizes;
         }},
    Part{"linear_attention", "linear", equal_heads},
    Part{"linear_attention_bidirectional", "linear", head_sizes},
    Part{"linear_attention_normalised", "linear", head_sizes},
    Part{"selective_scan", "mamba",
         [](const Layer& of) -> Sizes {
           return {{"D", of.part("inner")}, {"N", of.at("N")}};
         }},
    Part{"mamba_mixer", "mamba",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()},
                   {"Di", of.part("inner")},
                   {"N", of.at("N")},
                   {"R", of.at("R")},
                   {"W", of.at("conv")}};
         }},
    Part{"short_convolution", "mamba",
         [](const Layer& of) -> Sizes {
           return {{"C", of.part("inner")}, {"W", of.at("conv")}, {"bias", 1}};
         }},
    Part{"rms_norm", "mamba", residual_row},
    Part{"state_space_duality", "mamba2", ssd},
    Part{"mamba2_mixer", "mamba2",
         [](const Layer& of) -> Sizes {
           Sizes sizes = ssd(of);
           sizes.insert(sizes.end(),
                        {{"D", of.hidden()}, {"W", of.at("conv")}, {"norm_groups", of.shared("groups")}});
           return sizes;
         }},
    Part{"short_convolution", "mamba2",
         [](const Layer& of) -> Sizes {
           return {{"C", of.part("heads") * of.at("P") + 2 * of.shared("groups") * of.at("N")},
                   {"W", of.at("conv")},
                   {"bias", 1}};
         }},
    Part{"gate_first_rms_norm", "mamba2",
         [](const Layer& of) -> Sizes {
           const std::int64_t groups = of.shared("groups");
           return {{"H", groups}, {"D", of.part("heads") * of.at("P") / groups}};
         }},
    Part{"dendritic_attention", "dendrites",
         [](const Layer& of) -> Sizes {
           return {{"D", of.hidden()},          {"H", of.part("heads")}, {"N", of.at("windows")},
                   {"stride", of.at("stride")}, {"O", of.at("overlap")}, {"dv", of.at("dv")},
                   {"Es", of.at("shared")},     {"K", of.at("K")},       {"idle", of.at("idle")},
                   {"W", of.at("conv")}};
         }},
    Part{"dendritic_router", "dendrites",
         [](const Layer& of) -> Sizes {
           return {{"H", of.part("heads")},
                   {"d", of.hidden() / of.at("heads")},
                   {"Es", of.at("shared")},
                   {"K", of.at("K")},
                   {"idle", of.at("idle")}};
         }},
    Part{"overlap_windows", "dendrites",
         [](const Layer& of) -> Sizes {
           return {{"N", of.at("windows")}, {"stride", of.at("stride")}, {"O", of.at("overlap")}};
         }},
    Part{"gradient_step", "memory", widths},
    Part{"proximal_step", "memory", widths},
};

bool taken(const System& system, const Sizes& sizes) {
  return std::ranges::all_of(sizes, [&](const auto& one) {
    const auto found = std::ranges::find(system.sizes, one.first, &CaseSize::name);
    return found != system.sizes.end() && one.second >= found->least && one.second <= found->most;
  });
}

}  // namespace

std::vector<ModelSizes> model_sizes(const System& system) {
  constexpr std::array<std::int64_t, 4> kDivisions{1, 2, 4, 8};
  std::vector<ModelSizes> out;
  for (const Model& model : models()) {
    for (const Part& part : kParts) {
      const Model::Facts* facts = model.layer(part.layer);
      if (part.system != forward_name(system.name) || facts == nullptr) continue;
      for (const std::int64_t divided : kDivisions) {
        const Layer layer(model, *facts, divided);
        if (!part.only.empty() && layer.at(part.only) == 0) break;
        ModelSizes row{&model, divided, part.sizes(layer), layer.at("l2norm") != 0};
        if (!layer.whole() || !taken(system, row.sizes)) continue;
        const bool known = std::ranges::any_of(
            out, [&](const ModelSizes& other) { return other.model == &model && other.sizes == row.sizes; });
        if (!known) out.push_back(std::move(row));
      }
    }
  }
  return out;
}

}  // namespace samestate
