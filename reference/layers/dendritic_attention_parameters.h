#pragma once

#include <string>
#include <vector>

#include "reference/dendritic_router.h"
#include "reference/error.h"
#include "reference/overlap_windows.h"
#include "reference/sequence.h"

/// Sizes and weights of the dendritic attention layer (EQUATIONS 7.2). No projection and no convolution has a
/// bias.
namespace samestate {

/// The sizes from which every shape of the layer follows.
struct DendriticSizes {
  Index model_width = 1;        ///< D
  Index heads = 1;              ///< H
  Index head_width = 1;         ///< d, the width of queries and keys before they are split into windows
  Index value_width = 1;        ///< dv
  BranchCounts branch;          ///< E, Es, K
  Index windows = 1;            ///< N
  Index overlap = 0;            ///< O
  Index convolution_width = 4;  ///< W

  [[nodiscard]] Index branches() const { return branch.branches; }
  /// E H
  [[nodiscard]] Index merged_heads() const { return branch.branches * heads; }
  /// N E H
  [[nodiscard]] Index virtual_heads() const { return windows * merged_heads(); }
  /// e H + h
  [[nodiscard]] Index merged_head(Index e, Index h) const { return e * heads + h; }
  /// n E H + e H + h: window-major (DEND-27)
  [[nodiscard]] Index virtual_head(Index n, Index e, Index h) const {
    return n * merged_heads() + merged_head(e, h);
  }
  /// Throws Error if the windows do not divide the channels (7.5).
  [[nodiscard]] OverlapWindows split() const { return overlap_windows(head_width, windows, overlap); }
};

/// Throws Error, with the value and its limit, for invalid sizes: an extent below 1, fewer branches than
/// shared + routed, no active branch, or windows that do not divide the channels.
inline void require_dendritic_sizes(const DendriticSizes& s) {
  const auto positive = [](const char* name, Index value) {
    if (value < 1) throw Error(std::string(name) + "=" + std::to_string(value) + ": must be at least 1");
  };
  positive("model_width", s.model_width);
  positive("heads", s.heads);
  positive("head_width", s.head_width);
  positive("value_width", s.value_width);
  positive("convolution_width", s.convolution_width);
  require_branch_counts(s.branch);
  (void)s.split();
}

/// Name and shape of one weight, and the number of its copies (one per head).
struct DendriticWeightShape {
  const char* name;
  Index rows, columns;
  Index copies = 1;
};

/// Every weight of the layer, in the order of DendriticParameters::all. Their products sum to the parameter
/// count (P-26).
[[nodiscard]] inline std::vector<DendriticWeightShape> dendritic_weight_shapes(const DendriticSizes& s) {
  const Index keys = s.heads * s.head_width;
  const Index values = s.heads * s.value_width;
  return {{"q_proj", keys, s.model_width},
          {"k_proj", keys, s.model_width},
          {"v_proj", values, s.model_width},
          {"g_proj", values, s.model_width},
          {"o_proj", s.model_width, values},
          {"b_proj", s.merged_heads(), s.model_width},
          {"a_proj", s.merged_heads(), s.model_width},
          {"router", s.branch.candidates(), s.head_width},
          {"q_conv", keys, s.convolution_width},
          {"k_conv", keys, s.convolution_width},
          {"v_conv", values, s.convolution_width},
          {"A_log", s.merged_heads(), 1},
          {"dt_bias", s.merged_heads(), 1},
          {"o_norm", s.value_width, 1},
          {"q_expansion", s.branches() * s.head_width, s.head_width, s.heads},
          {"k_expansion", s.branches() * s.head_width, s.head_width, s.heads}};
}

/// The weights; projections are [out, in].
template <class Scalar>
struct DendriticParameters {
  DendriticSizes sizes;
  Matrix<Scalar> q_proj;                    ///< [H d, D]
  Matrix<Scalar> k_proj;                    ///< [H d, D]
  Matrix<Scalar> v_proj;                    ///< [H dv, D]
  Matrix<Scalar> g_proj;                    ///< [H dv, D], the gate z of the output norm
  Matrix<Scalar> o_proj;                    ///< [D, H dv]
  Matrix<Scalar> b_proj;                    ///< [E H, D]
  Matrix<Scalar> a_proj;                    ///< [E H, D]
  Matrix<Scalar> router;                    ///< [E - Es, d], one for all heads (A-08)
  Matrix<Scalar> q_conv;                    ///< [H d, W], shared by the branches
  Matrix<Scalar> k_conv;                    ///< [H d, W]
  Matrix<Scalar> v_conv;                    ///< [H dv, W]
  Vector<Scalar> A_log;                     ///< [E H]
  Vector<Scalar> dt_bias;                   ///< [E H]
  Vector<Scalar> o_norm;                    ///< [dv], shared by the heads (A-14)
  std::vector<Matrix<Scalar>> q_expansion;  ///< H of [E d, d]: output channel e d + c
  std::vector<Matrix<Scalar>> k_expansion;  ///< H of [E d, d]
  Scalar norm_epsilon{1e-5};

  /// Calls visit(index into dendritic_weight_shapes, weight) for each weight, copies one by one.
  template <class Self, class Visit>
  static void all(Self& self, Visit&& visit) {
    visit(0, self.q_proj);
    visit(1, self.k_proj);
    visit(2, self.v_proj);
    visit(3, self.g_proj);
    visit(4, self.o_proj);
    visit(5, self.b_proj);
    visit(6, self.a_proj);
    visit(7, self.router);
    visit(8, self.q_conv);
    visit(9, self.k_conv);
    visit(10, self.v_conv);
    visit(11, self.A_log);
    visit(12, self.dt_bias);
    visit(13, self.o_norm);
    for (auto& weight : self.q_expansion) visit(14, weight);
    for (auto& weight : self.k_expansion) visit(15, weight);
  }
};

/// Throws Error for invalid sizes and for a weight whose shape is not the one that follows from them.
template <class Scalar>
void require_dendritic_parameters(const DendriticParameters<Scalar>& p) {
  require_dendritic_sizes(p.sizes);
  const std::vector<DendriticWeightShape> shapes = dendritic_weight_shapes(p.sizes);
  const auto heads = static_cast<std::size_t>(p.sizes.heads);
  if (p.q_expansion.size() != heads || p.k_expansion.size() != heads) {
    throw Error("dendritic_attention: " + std::to_string(p.q_expansion.size()) + " and " +
                std::to_string(p.k_expansion.size()) + " expansions for " + std::to_string(heads) + " heads");
  }
  DendriticParameters<Scalar>::all(p, [&](std::size_t i, const auto& weight) {
    const DendriticWeightShape& shape = shapes[i];
    if (weight.rows() != shape.rows || weight.cols() != shape.columns) {
      throw Error("dendritic_attention: " + std::string(shape.name) + " is " + std::to_string(weight.rows()) +
                  " x " + std::to_string(weight.cols()) + ", must be " + std::to_string(shape.rows) + " x " +
                  std::to_string(shape.columns));
    }
  });
}

}  // namespace samestate
