#include "oracles/proofs/goldens/groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/family.h"
#include "reference/backward/chunk.h"
#include "reference/backward/l2norm.h"
#include "reference/backward/recurrence.h"
#include "reference/delta_rule.h"
#include "reference/error.h"
#include "reference/gated_delta_rule.h"
#include "reference/l2norm.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"

namespace samestate::recurrent_family_golden {
namespace {

/// Chunk of the public chunked code that made the goldens; ours uses others too.
constexpr std::array<Index, 3> kChunks{1, 7, 64};

/// The outputs of public code that a group may contain.
constexpr std::array<std::string_view, 6> kOutputs{"out",   "out_recurrent",   "out_chunk64",
                                                   "state", "state_recurrent", "state_chunk64"};

/// How a group's tensors are to be read.
struct Recipe {
  const Family* family = nullptr;
  bool heads_first = false;   ///< [B, H, T, D] instead of [B, T, H, D]
  bool retnet_decay = false;  ///< g = log(1 - 2^(-5-h)) instead of a tensor
};

Matrix<double> slab(const Tensor& t, Index b, Index h, bool heads_first) {
  const View<const double, 4> x = t.view<4>();
  const Index T = heads_first ? x.shape[2] : x.shape[1];
  Matrix<double> out(T, x.shape[3]);
  for (Index i = 0; i < T; ++i) {
    for (Index c = 0; c < x.shape[3]; ++c) out(i, c) = heads_first ? x(b, h, i, c) : x(b, i, h, c);
  }
  return out;
}

Vector<double> column(const Tensor& t, Index b, Index h) {
  const View<const double, 3> x = t.view<3>();
  Vector<double> out(x.shape[1]);
  for (Index i = 0; i < out.size(); ++i) out(i) = x(b, i, h);
  return out;
}

Matrix<double> state_slab(const Tensor& t, Index b, Index h) {
  const View<const double, 4> x = t.view<4>();
  Matrix<double> out(x.shape[2], x.shape[3]);
  for (Index l = 0; l < out.rows(); ++l) {
    for (Index c = 0; c < out.cols(); ++c) out(l, c) = x(b, h, l, c);
  }
  return out;
}

/// The largest difference and the largest expected value so far.
struct Comparison {
  double difference = 0.0;
  double size = 0.0;
  void add(const Matrix<double>& mine, const Matrix<double>& golden) {
    if (mine.rows() != golden.rows() || mine.cols() != golden.cols()) {
      throw Error("golden tensor of " + std::to_string(golden.rows()) + " x " +
                  std::to_string(golden.cols()) + " where the inputs give " + std::to_string(mine.rows()) +
                  " x " + std::to_string(mine.cols()));
    }
    if (golden.size() == 0) return;
    const double d = (mine - golden).cwiseAbs().maxCoeff<Eigen::PropagateNaN>();
    difference = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(difference, d);
    size = std::max(size, golden.cwiseAbs().maxCoeff<Eigen::PropagateNumbers>());
  }
};

Sequence<double> head_of(const GoldenSource& s, const Recipe& recipe, Index b, Index h) {
  Sequence<double> x;
  x.q = slab(s.tensor("q"), b, h, recipe.heads_first);
  x.k = slab(s.tensor("k"), b, h, recipe.heads_first);
  x.v = slab(s.tensor("v"), b, h, recipe.heads_first);
  const Index T = x.k.rows();
  if (x.q.rows() != T || x.v.rows() != T || x.q.cols() != x.k.cols()) {
    throw Error(s.file_name + ": group " + s.group + ": q, k and v disagree in shape");
  }
  x.g = Vector<double>::Zero(T);
  if (recipe.retnet_decay) {
    x.g.setConstant(retention_log_decay<double>(h));
  } else if (recipe.family->gated) {
    x.g = column(s.tensor("g"), b, h);
  }
  x.beta = recipe.family->delta ? column(s.tensor("beta"), b, h) : Vector<double>::Ones(T);
  if (x.g.size() != T || x.beta.size() != T) {
    throw Error(s.file_name + ": group " + s.group + ": g or beta disagrees with q in shape");
  }
  if (s.has("use_qk_l2norm") && s.tensor("use_qk_l2norm").values.at(0) != 0.0) {
    x.q = l2norm(x.q);
    x.k = l2norm(x.k);
  }
  x.scale = 1.0 / std::sqrt(static_cast<double>(x.key_width()));
  x.initial_state = s.has("initial_state") ? state_slab(s.tensor("initial_state"), b, h)
                                           : Matrix<double>::Zero(x.key_width(), x.value_width());
  return x;
}

/// Throws Error unless the tensor has this rank and the B rows and H heads of the tensor `as`.
void require_shape(const GoldenSource& s, std::string_view name, std::size_t rank, std::size_t head_axis,
                   Index B, Index H, const std::string& as = "q") {
  const Tensor& t = s.tensor(name);
  if (t.rank() == rank && t.shape[0] == B && t.shape[head_axis] == H) return;
  throw Error(s.file_name + ": tensor " + s.path(name) + " must have " + std::to_string(rank) +
              " dimensions, " + std::to_string(B) + " rows and " + std::to_string(H) + " heads, as " + as +
              " has");
}

/// The inputs of a group, or their gradients, that have a row a sequence and heads: name, rank and axis of the heads.
struct Shaped {
  std::string_view name;
  std::size_t rank, head_axis;
};
std::vector<Shaped> inputs_of(const GoldenSource& s, const Recipe& recipe) {
  const std::size_t head_axis = recipe.heads_first ? 1 : 2;
  std::vector<Shaped> out{{"q", 4, head_axis}, {"k", 4, head_axis}, {"v", 4, head_axis}};
  if (recipe.family->gated && !recipe.retnet_decay) out.push_back({"g", 3, 2});
  if (recipe.family->delta) out.push_back({"beta", 3, 2});
  if (s.has("initial_state")) out.push_back({"initial_state", 4, 1});
  return out;
}

/// The rows and heads of q. Throws Error unless the other inputs have them too.
std::pair<Index, Index> require_inputs(const GoldenSource& s, const Recipe& recipe) {
  const Tensor& q = s.tensor("q");
  if (q.rank() != 4) throw Error(s.file_name + ": " + s.path("q") + " must have 4 dimensions");
  const Index B = q.shape[0], H = q.shape[recipe.heads_first ? 1 : 2];
  for (const Shaped& x : inputs_of(s, recipe)) require_shape(s, x.name, x.rank, x.head_axis, B, H);
  return {B, H};
}

void check_group(const GoldenSource& s, const Recipe& recipe) {
  const auto rows_and_heads = require_inputs(s, recipe);
  const Index B = rows_and_heads.first, H = rows_and_heads.second;
  const std::size_t head_axis = recipe.heads_first ? 1 : 2;
  bool compared = false;
  for (std::string_view name : kOutputs) {
    if (!s.has(name)) continue;
    require_shape(s, name, 4, name.starts_with("out") ? head_axis : 1, B, H);
    compared = true;
  }
  if (!compared)
    throw Error(s.file_name + ": group " + s.group +
                " has inputs but no output to compare with (out, state)");

  using Run = std::function<Trajectory<double>(const Sequence<double>&)>;
  const auto check = [&](const std::string& form, const Run& run) {
    for (std::string_view name : kOutputs) {
      if (!s.has(name)) continue;
      Comparison comparison;
      for (Index b = 0; b < B; ++b) {
        for (Index h = 0; h < H; ++h) {
          const Trajectory<double> mine = run(head_of(s, recipe, b, h));
          if (name.starts_with("out")) {
            comparison.add(mine.o, slab(s.tensor(name), b, h, recipe.heads_first));
          } else {
            comparison.add(mine.state, state_slab(s.tensor(name), b, h));
          }
        }
      }
      const double error =
          comparison.size > 0 ? comparison.difference / comparison.size : comparison.difference;
      s.report.checks.push_back(
          {s.file_name, s.group, std::string(name), form, error, kGoldenLimit, error <= kGoldenLimit});
    }
  };
  const Family& family = *recipe.family;
  check("recurrent", family.recurrent);
  for (Index chunk : kChunks) {
    check("chunked " + std::to_string(chunk),
          [&family, chunk](const Sequence<double>& x) { return family.chunked(x, chunk); });
  }
}

/// The system that made a group, found from its name.
Recipe recipe_of(std::string_view group) {
  Recipe recipe;
  if (group.starts_with("gdn_") && group != "gdn_layer") recipe.family = &family_named("gated_delta_rule");
  if (group == "delta_rule") recipe.family = &family_named("delta_rule");
  if (group == "linear_attention") recipe.family = &family_named("linear_attention");
  if (group == "scalar_gated") recipe.family = &family_named("retention");
  if (group == "retention") {
    recipe.family = &family_named("retention");
    // The public naive code takes [B, H, T, D]: its decay belongs to axis 1.
    recipe.heads_first = true;
    recipe.retnet_decay = true;
  }
  return recipe;
}

/// The backward pass of a head in the forms that a system has.
struct Reverse {
  using Run = std::function<HeadGradients<double>(const Sequence<double>&, const HeadCotangents<double>&)>;
  std::string form;
  Run run;
};

template <class System>
std::vector<Reverse> reverses_of() {
  std::vector<Reverse> out{{"recurrent", recurrent_backward<System, double>}};
  for (const Index chunk : kChunks) {
    out.push_back({"chunked " + std::to_string(chunk),
                   [chunk](const Sequence<double>& x, const HeadCotangents<double>& d) {
                     return chunked_backward<System>(x, d, chunk);
                   }});
  }
  return out;
}

std::vector<Reverse> reverses_of(const Family& family) {
  if (family.gated) return family.delta ? reverses_of<GatedDeltaRule>() : reverses_of<Retention>();
  return family.delta ? reverses_of<DeltaRule>() : reverses_of<LinearAttention>();
}

/// The gradients by q, k, v, g, beta and the initial state as the group has them, those of q and k before an l2norm.
void check_gradients(const GoldenSource& s, const Recipe& recipe, const Reverse& reverse) {
  const auto [rows, H] = require_inputs(s, recipe);
  const Tensor& d_out = s.tensor("d.out");
  const Index B =
      d_out.shape.empty() ? 0 : d_out.shape[0];  // those sequences of the group that were differentiated
  if (B < 1 || B > rows)
    throw Error(s.file_name + ": tensor " + s.path("d.out") + " must have 1 to " + std::to_string(rows) +
                " rows, which q has");
  require_shape(s, "d.out", 4, recipe.heads_first ? 1 : 2, B, H);
  if (s.has("d.state")) require_shape(s, "d.state", 4, 1, B, H, "d.out");
  for (const Shaped& x : inputs_of(s, recipe))
    require_shape(s, "d." + std::string(x.name), x.rank, x.head_axis, B, H, "d.out");
  const bool normalised = s.has("use_qk_l2norm") && s.tensor("use_qk_l2norm").values.at(0) != 0.0;
  std::map<std::string, Comparison> all;
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < H; ++h) {
      HeadCotangents<double> d{slab(d_out, b, h, recipe.heads_first), {}};
      if (s.has("d.state")) d.state = state_slab(s.tensor("d.state"), b, h);
      HeadGradients<double> mine = reverse.run(head_of(s, recipe, b, h), d);
      const auto compare = [&](const std::string& name, const Matrix<double>& gradient) {
        all[name].add(gradient, slab(s.tensor(name), b, h, recipe.heads_first));
      };
      if (normalised) {
        mine.q = l2norm_backward(slab(s.tensor("q"), b, h, recipe.heads_first), mine.q);
        mine.k = l2norm_backward(slab(s.tensor("k"), b, h, recipe.heads_first), mine.k);
      }
      compare("d.q", mine.q);
      compare("d.k", mine.k);
      compare("d.v", mine.v);
      if (recipe.family->gated && !recipe.retnet_decay) all["d.g"].add(mine.g, column(s.tensor("d.g"), b, h));
      if (recipe.family->delta) all["d.beta"].add(mine.beta, column(s.tensor("d.beta"), b, h));
      if (s.has("initial_state"))
        all["d.initial_state"].add(mine.initial_state, state_slab(s.tensor("d.initial_state"), b, h));
    }
  }
  for (const auto& [name, comparison] : all) {
    const double error =
        comparison.size > 0 ? comparison.difference / comparison.size : comparison.difference;
    s.report.checks.push_back(
        {s.file_name, s.group, name, reverse.form, error, kGoldenLimit, error <= kGoldenLimit});
  }
}

}  // namespace

void check_backward(const GoldenSource& source) {
  const Recipe recipe = recipe_of(source.forward_group);
  for (const Reverse& reverse : reverses_of(*recipe.family)) check_gradients(source, recipe, reverse);
}

void check(const GoldenSource& source) { check_group(source, recipe_of(source.group)); }

}  // namespace samestate::recurrent_family_golden
