#include <cmath>
#include <optional>
#include <utility>

#include "harness/laws/tensor_comparison.h"
#include "oracles/numbers.h"
#include "oracles/systems/family.h"
#include "oracles/systems/judge_samples.h"

/// Sums of gradients that the outputs of a recurrence determine, by Euler's theorem on homogeneous functions. With L the
/// loss, and sums over the value heads h of a key head:
///   q -> c q:                               q . dq = sum_h do . o                                   at each token
///   k -> c k, v -> c v, beta -> c^-2 beta:  k . dk + sum_h v . dv = sum_h 2 beta dbeta              at each token
///   k -> c k, v -> v / c, without beta:     k . dk = sum_h v . dv                                   at each token
///   v, S -> c v, c S from token t on:       dg_t + v . dv = dg_{t+1} + do . o                       at each token
/// where dg_t is <dS_{t-1}, S_{t-1}>, so dg behind the last token is <dS_T, S_T>, and that of the first token is
/// <dS_0, S_0>. Without g the last identity is summed over all tokens: <dS_0, S_0> + sum_t v . dv = <dS_T, S_T> +
/// sum_t do . o. A reset is no exception, since dg_t is 0 there.
/// With l2norm inside, y = x r with r = (|x|^2 + epsilon)^-1/2, the first three hold for y; since dx = r (dy - y <y, dy>),
/// x . dx is n = 1 - |y|^2 = epsilon r^2 times y . dy: a gradient is orthogonal to its vector, up to epsilon.
/// o and S come from the float64 reference of the forward pass, whose own errors the tolerance covers.
namespace samestate::tensor_laws_detail {
namespace {

/// The product of a row of a gradient with the same row of an input.
struct Product {
  std::string gradient;
  Index row = 0;
  const Matrix<double>* factors = nullptr;  ///< the input; same shape as the gradient
  double times = 1.0;                       ///< the product counts this many times
  Index place = 0;                          ///< of its sum
};

/// Sums of products that must be equal in pairs, one pair a head and token.
struct Identity {
  std::string name;
  const char* left_words;
  const char* right_words;
  Index heads = 0, places = 0;  ///< places of each head: its tokens, and possibly the initial state
  std::vector<Product> left, right;
  Vector<double> known;  ///< [heads * places] what the outputs add to the right
  Vector<double> sizes;  ///< [heads * places] the same with all terms of these sums positive
  Vector<double> both;   ///< [heads * places] added to both sides, whose values may be near zero

  Identity(std::string of, const char* first, const char* second, Index head_count, Index place_count)
      : name(std::move(of)),
        left_words(first),
        right_words(second),
        heads(head_count),
        places(place_count),
        known(Vector<double>::Zero(head_count * place_count)),
        sizes(known),
        both(known) {}

  /// Adds a sum to the right.
  void add_known(Index place, double value, double size) {
    known(place) += value;
    sizes(place) += size;
  }
};

Vector<double> sums(const std::vector<Product>& products, Index size, const Tensors<double>& gradients) {
  Vector<double> out = Vector<double>::Zero(size);
  for (const Product& p : products)
    out(p.place) += p.times * p.factors->row(p.row).dot(get(gradients, p.gradient).row(p.row));
  return out;
}

/// Returns how far each difference of two sums may lie from zero if each element may be as far off as `bounds` says.
Vector<double> widths(const Identity& x, const Tensors<double>& bounds) {
  Vector<double> out = Vector<double>::Zero(x.known.size());
  for (const auto* side : {&x.left, &x.right}) {
    for (const Product& p : *side) {
      const auto bound = get(bounds, p.gradient).row(p.row);
      out(p.place) +=
          bound.allFinite() ? std::abs(p.times) * p.factors->row(p.row).cwiseAbs().dot(bound) : kInfinity;
    }
  }
  return out;
}

/// The sums with an element that may overflow, or that depends on an open choice.
Matrix<bool> open_sums(const Identity& x, const OperatorOracle& oracle) {
  Matrix<bool> open = Matrix<bool>::Constant(x.known.size(), 1, false);
  for (const auto* side : {&x.left, &x.right}) {
    for (const Product& p : *side) {
      open(p.place, 0) = open(p.place, 0) || oracle.row_may_overflow(p.gradient, p.row) ||
                         get(oracle.undecided, p.gradient)(p.row, 0);
    }
  }
  return open;
}

/// Returns what float64 may lose in the sums themselves and in the forward pass: n 2^-53 of the terms for n additions.
Vector<double> lost_in_float64(const Case& c, const Identity& x, const OperatorOracle& oracle) {
  Tensors<double> sizes;
  for (const auto& [name, exact] : oracle.exact) sizes.emplace(name, exact.cwiseAbs());
  const auto additions = static_cast<double>((c.T + 1) * (c.dk + c.dv) * (c.Hv / c.Hk));
  return additions * 0x1p-53 * (widths(x, sizes) + x.sizes + x.both);
}

/// Returns how far each difference of two sums may lie from zero. Worst cases of the elements add up; drawn roundings are
/// drawn for the sum itself, which is then an output of one column with a variance of its own.
Vector<double> tolerance_of(const Case& c, const Identity& x, const OperatorOracle& oracle,
                            const SampledErrors* drawn) {
  const Index size = x.known.size();
  const Vector<double> lost = lost_in_float64(c, x, oracle);
  Vector<double> worst = widths(x, oracle.tolerance);
  if (drawn == nullptr) return worst + lost;
  OperatorOracle of_sums;
  of_sums.exact = {{x.name, x.known + sums(x.right, size, oracle.exact)}};
  of_sums.tolerance = {{x.name, worst}};
  of_sums.undecided = {{x.name, open_sums(x, oracle)}};
  SampledErrors errors;
  for (const Tensors<double>& sample : drawn->samples)
    errors.samples.push_back({{x.name, sums(x.left, size, sample) - sums(x.right, size, sample)}});
  errors.between = {{x.name, widths(x, drawn->between)}};
  return get(sampled_tolerances(of_sums, errors), x.name).col(0) + lost;
}

/// The inputs of one sequence, and what its forward pass gives.
struct Forward {
  Tensors<double> inputs;          ///< and `one`, the derivative of g by itself
  Matrix<double> read, read_size;  ///< [Hv, T] do . o, and |do| . |o|
  Vector<double> last, last_size;  ///< [Hv] <dS_T, S_T>, and <|dS_T|, |S_T|>
};

Forward forward_of(const TensorSubject& s, const Batch& batch, Index b) {
  const Case& c = s.r.c;
  const Matrix<double> none = Matrix<double>::Zero(c.Hv, c.T);
  Forward out{sequence_of(s.inputs, b), none, none, Vector<double>::Zero(c.Hv), Vector<double>::Zero(c.Hv)};
  out.inputs.emplace("one", Matrix<double>::Ones(c.T * c.Hv, 1));
  const auto d_o = out.inputs.find("d.o"), d_state = out.inputs.find("d.final_state");
  for (Index h = 0; h < c.Hv; ++h) {
    const Trajectory<double> head = s.system.row.family->recurrent(sequence_of(batch, b, h));
    for (Index t = 0; d_o != out.inputs.end() && t < c.T; ++t) {
      const Matrix<double> terms = d_o->second.row(t * c.Hv + h).cwiseProduct(head.o.row(t));
      out.read(h, t) = terms.sum();
      out.read_size(h, t) = terms.cwiseAbs().sum();
    }
    if (d_state == out.inputs.end()) continue;
    const Matrix<double> terms = d_state->second.middleRows(h * c.dk, c.dk).cwiseProduct(head.state);
    out.last(h) = terms.sum();
    out.last_size(h) = terms.cwiseAbs().sum();
  }
  return out;
}

/// The share of y . dy that is left in x . dx: 1, or n with the norm inside.
double share_along(const Case& c, const Matrix<double>& x, Index row) {
  constexpr double kEpsilon = Given::kNormEpsilon;
  return c.l2norm ? kEpsilon / (x.row(row).squaredNorm() + kEpsilon) : 1.0;
}

/// The length of a vector times that of its gradient, with the norm inside: x . dx is almost zero then, and is compared at
/// the size of its terms.
double size_along(const Case& c, const Matrix<double>& x, const Matrix<double>& gradient, Index row) {
  return c.l2norm ? x.row(row).norm() * gradient.row(row).norm() : 0.0;
}

Identity along_queries(const Case& c, const Forward& f, const OperatorOracle& oracle) {
  Identity x("d.q along q", "q . d.q of each key head and token", "d.o . o of its value heads, summed", c.Hk,
             c.T);
  const Matrix<double>& q = get(f.inputs, "q");
  for (Index t = 0; t < c.T; ++t) {
    for (Index h = 0; h < c.Hk; ++h) {
      const Index row = t * c.Hk + h, place = h * c.T + t;
      x.left.push_back({"d.q", row, &q, 1.0, place});
      x.both(place) = size_along(c, q, get(oracle.exact, "d.q"), row);
    }
    for (Index h = 0; h < c.Hv; ++h) {
      const Index key = key_head(h, c.Hk, c.Hv, c.heads);
      const double share = share_along(c, q, t * c.Hk + key);
      x.add_known(key * c.T + t, share * f.read(h, t), share * f.read_size(h, t));
    }
  }
  return x;
}

Identity along_keys(const Case& c, const Family& family, const Forward& f, const OperatorOracle& oracle) {
  Identity x("d.k along k",
             family.delta ? "k . d.k of each key head and token, and v . d.v of its value heads"
                          : "k . d.k of each key head and token",
             family.delta ? "2 beta d.beta of its value heads, summed" : "v . d.v of its value heads, summed",
             c.Hk, c.T);
  const Matrix<double>&k = get(f.inputs, "k"), &v = get(f.inputs, "v");
  for (Index t = 0; t < c.T; ++t) {
    for (Index h = 0; h < c.Hk; ++h) {
      const Index row = t * c.Hk + h, place = h * c.T + t;
      x.left.push_back({"d.k", row, &k, 1.0, place});
      x.both(place) = size_along(c, k, get(oracle.exact, "d.k"), row);
    }
    for (Index h = 0; h < c.Hv; ++h) {
      const Index key = key_head(h, c.Hk, c.Hv, c.heads), row = t * c.Hv + h, place = key * c.T + t;
      const double share = share_along(c, k, t * c.Hk + key);
      (family.delta ? x.left : x.right).push_back({"d.v", row, &v, share, place});
      if (family.delta) x.right.push_back({"d.beta", row, &get(f.inputs, "beta"), 2.0 * share, place});
    }
  }
  return x;
}

/// Puts <dS_0, S_0> of each head at `place` of its places; nothing if no initial state is given.
void add_initial_states(const Case& c, const Forward& f, Index place, Identity& x) {
  const auto state = f.inputs.find("initial_state");
  for (Index h = 0; state != f.inputs.end() && h < c.Hv; ++h) {
    for (Index row = h * c.dk; row < (h + 1) * c.dk; ++row)
      x.left.push_back({"d.initial_state", row, &state->second, 1.0, h * x.places + place});
  }
}

Identity along_values(const Case& c, const Forward& f) {
  Identity x("d.v along v", "v . d.v of each head over all tokens, and its <initial state, d.initial_state>",
             "d.o . o over all tokens, and <final state, d.final_state>", c.Hv, 1);
  for (Index h = 0; h < c.Hv; ++h) {
    for (Index t = 0; t < c.T; ++t) x.left.push_back({"d.v", t * c.Hv + h, &get(f.inputs, "v"), 1.0, h});
    x.add_known(h, f.read.row(h).sum() + f.last(h), f.read_size.row(h).sum() + f.last_size(h));
  }
  add_initial_states(c, f, 0, x);
  return x;
}

Identity along_gates(const Case& c, const Forward& f) {
  const bool state = f.inputs.contains("initial_state");
  Identity x("d.g by token",
             "d.g and v . d.v of each head and token; at the end of each head <initial state, "
             "d.initial_state>",
             "d.g of the next token, or <final state, d.final_state>, and d.o . o; at the end d.g of the "
             "first token",
             c.Hv, c.T + (state ? 1 : 0));
  const Matrix<double>&one = get(f.inputs, "one"), &v = get(f.inputs, "v");
  for (Index h = 0; h < c.Hv; ++h) {
    for (Index t = 0; t < c.T; ++t) {
      const Index row = t * c.Hv + h, place = h * x.places + t;
      x.left.push_back({"d.g", row, &one, 1.0, place});
      x.left.push_back({"d.v", row, &v, 1.0, place});
      if (t + 1 < c.T) x.right.push_back({"d.g", row + c.Hv, &one, 1.0, place});
      x.add_known(place, f.read(h, t), f.read_size(h, t));
      if (t + 1 == c.T) x.add_known(place, f.last(h), f.last_size(h));
    }
    if (state) x.right.push_back({"d.g", h, &one, 1.0, h * x.places + c.T});
  }
  if (state) add_initial_states(c, f, c.T, x);
  return x;
}

/// The places of an identity as a tensor [heads, places].
Tensors<double> by_head(const Identity& x, const Vector<double>& values) {
  return {{x.name, Eigen::Map<const Matrix<double>>(values.data(), x.heads, x.places)}};
}

void compare_sums(Comparison& comparison, const Case& c, Index b, const Identity& x,
                  const Tensors<double>& gradients, const OperatorOracle& oracle,
                  const SampledErrors* drawn) {
  const Index size = x.known.size();
  const auto left = [&](const Tensors<double>& of) { return by_head(x, sums(x.left, size, of) + x.both); };
  const auto right = [&](const Tensors<double>& of) {
    return by_head(x, sums(x.right, size, of) + x.known + x.both);
  };
  OperatorOracle of_left, of_right;
  of_left.points = oracle.points;
  of_left.exact = left(oracle.exact);
  of_right.exact = right(oracle.exact);
  // The whole tolerance is that of the first side: errors that both sides share are not added.
  of_left.tolerance = by_head(x, tolerance_of(c, x, oracle, drawn));
  of_right.tolerance = by_head(x, Vector<double>::Zero(size));
  const Tensors<double> first = left(gradients), second = right(gradients);
  comparison.add_by_head(b, x.name, {first, of_left}, {second, of_right});
}

}  // namespace

Judgement backward_homogeneity(const TensorSubject& s) {
  const Case& c = s.r.c;
  const Family& family = *s.system.row.family;
  const Call call = s.system.call(c, s.native);
  const std::vector<Tensors<double>> gradients = s.run(s.inputs, {});
  const Batch batch = forward_call(s.r, s.inputs);
  Comparison comparison(s.trace);
  for (Index b = 0; b < c.B; ++b) {
    const Forward f = forward_of(s, batch, b);
    const Tensors<double> inputs = sequence_of(s.inputs, b);
    const OperatorOracle oracle = operator_oracle(s.system.row, call, inputs, {}, *s.r.contract);
    std::optional<SampledErrors> drawn;
    if (s.samples > 0 && oracle.points) {
      drawn = sample_errors(s.system.row, call, inputs, {}, *s.r.contract, oracle, c.seed, s.first_sample,
                            s.samples);
    }
    for (const Identity& x : {along_queries(c, f, oracle), along_keys(c, family, f, oracle),
                              family.gated ? along_gates(c, f) : along_values(c, f)}) {
      comparison.begin(Change::cotangents, x.left_words, x.right_words);
      compare_sums(comparison, c, b, x, gradients[static_cast<std::size_t>(b)], oracle,
                   drawn ? &*drawn : nullptr);
    }
  }
  return comparison.take("a sum of gradients and what the outputs demand of it");
}

}  // namespace samestate::tensor_laws_detail
