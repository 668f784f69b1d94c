#include "optimized/cpu/backward/experts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/routing.h"

namespace samestate::cpu {
namespace {

constexpr std::int64_t kTileOfTokens = 32;   // that a task of the router takes at a time
constexpr std::int64_t kRowsOfExperts = 16;  // of the router's gradient that a task takes at a time

/// The experts of a call's tokens as the forward pass chose them, and the assignments (token, rank) by expert.
struct SavedRoute {
  std::int64_t K;
  std::vector<std::int64_t> expert;  ///< [tokens K] by slot, token K + rank
  std::vector<std::int64_t> begin;   ///< [N + 1]
  std::vector<std::int64_t> slot;    ///< [tokens K] by expert, then by token

  explicit SavedRoute(const OperatorArguments& call) : K(call.parameter("K")) {
    const std::int64_t slots = call.batch * call.tokens * K;
    const float* const given = call.input("experts").data;
    begin.assign(static_cast<std::size_t>(call.parameter("N")) + 1, 0);
    slot.resize(static_cast<std::size_t>(slots));
    for (std::int64_t s = 0; s < slots; ++s) expert.push_back(std::llround(given[s]));
    for (const std::int64_t e : expert) ++begin[static_cast<std::size_t>(e) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::int64_t> next = begin;
    for (std::int64_t s = 0; s < slots; ++s)
      slot[static_cast<std::size_t>(next[static_cast<std::size_t>(of(s))]++)] = s;
  }

  [[nodiscard]] std::int64_t of(std::int64_t s) const { return expert[static_cast<std::size_t>(s)]; }

  /// weights [K] = softmax of the token's chosen logits, kept in `format`.
  void weigh(const float* logits, std::int64_t token, Format format, float* weights) const {
    const std::int64_t first = token * K;
    float largest = logits[of(first)], sum = 0.0F;
    for (std::int64_t r = 1; r < K; ++r) largest = std::max(largest, logits[of(first + r)]);
    for (std::int64_t r = 0; r < K; ++r) sum += weights[r] = std::exp(logits[of(first + r)] - largest);
    for (std::int64_t r = 0; r < K; ++r) weights[r] *= 1.0F / sum;
    round_values(weights, weights, K, format);
  }

  /// d_logits of the chosen experts += w (dw - <w, dw>), where weights and cotangents are [K].
  void add_chosen(std::int64_t token, const float* weights, const float* cotangents, float* d_logits) const {
    float along = 0.0F;
    for (std::int64_t r = 0; r < K; ++r) along += weights[r] * cotangents[r];
    for (std::int64_t r = 0; r < K; ++r) d_logits[of(token * K + r)] += weights[r] * (cotangents[r] - along);
  }
};

/// sigma(g) (1 + g (1 - sigma(g))), the derivative of silu.
float slope_of_silu(float g) {
  const float sigma = layer::logistic(g);
  return sigma * (1.0F + g * (1.0F - sigma));
}

/// A thread keeps these blocks of one expert's tokens.
struct ExpertBack {
  Block x, dy, weight, gate, up, hidden, y, d_gate, d_up, dx, other, turned, product;
};

/// Computes the gradients of expert e, and for its slots the rows of `of_slot` [tokens K, D], which d.x adds up, and the
/// cotangents of the weights.
class ExpertsBack {
 public:
  ExpertsBack(const OperatorArguments& call, const Contract& contract, const SavedRoute& route,
              const std::vector<float>& weights, Block& of_slot, std::vector<float>& d_weights)
      : call_(call),
        contract_(contract),
        route_(route),
        weights_(weights),
        of_slot_(of_slot),
        d_weights_(d_weights),
        unit_(MatrixUnit::of(contract)),
        D_(call.parameter("D")),
        F_(call.parameter("F")) {}

  void operator()(std::int64_t e, ExpertBack& b) const {
    const std::int64_t first = route_.begin[static_cast<std::size_t>(e)];
    const std::int64_t size = route_.begin[static_cast<std::size_t>(e) + 1] - first;
    if (size == 0) {
      std::fill_n(gradient("d.gate", e), F_ * D_, 0.0F);
      std::fill_n(gradient("d.up", e), F_ * D_, 0.0F);
      std::fill_n(gradient("d.down", e), F_ * D_, 0.0F);
      return;
    }
    const std::int64_t* const slots = route_.slot.data() + first;
    gather("x", slots, size, b.x);
    gather("d.y", slots, size, b.dy);
    projected("gate", e, b.x, b.gate, b);
    projected("up", e, b.x, b.up, b);
    b.hidden.resize(size, F_);
    for_each(b.hidden,
             [&](std::size_t i) { b.hidden.values[i] = layer::silu(b.gate.values[i]) * b.up.values[i]; });
    round_in_place(b.hidden, contract_.input);
    projected("down", e, b.hidden, b.y, b);
    for (std::int64_t n = 0; n < size; ++n) {
      const auto slot = static_cast<std::size_t>(slots[n]);
      float along = 0.0F;
      for (std::int64_t j = 0; j < D_; ++j) along += b.dy.row(n)[j] * b.y.row(n)[j];
      d_weights_[slot] = along;
      for (std::int64_t j = 0; j < D_; ++j) b.dy.row(n)[j] *= weights_[slot];
    }
    round_in_place(b.dy, contract_.input);
    // The cotangent of the hidden row, of which both factors' are made in place.
    returned("down", e, b.dy, b.d_up, b);
    of_weight("d.down", e, b.dy, b.hidden, b);
    b.d_gate.resize(size, F_);
    for_each(b.d_up, [&](std::size_t i) {
      const float gate = b.gate.values[i];
      b.d_gate.values[i] = b.d_up.values[i] * b.up.values[i] * slope_of_silu(gate);
      b.d_up.values[i] *= layer::silu(gate);
    });
    round_in_place(b.d_up, contract_.input);
    round_in_place(b.d_gate, contract_.input);
    of_weight("d.gate", e, b.d_gate, b.x, b);
    of_weight("d.up", e, b.d_up, b.x, b);
    returned("gate", e, b.d_gate, b.dx, b);
    returned("up", e, b.d_up, b.other, b);
    for (std::int64_t n = 0; n < size; ++n) {
      for (std::int64_t j = 0; j < D_; ++j) of_slot_.row(slots[n])[j] = b.dx.row(n)[j] + b.other.row(n)[j];
    }
  }

 private:
  template <class Each>
  static void for_each(const Block& like, const Each& each) {
    for (std::int64_t i = 0; i < like.size(); ++i) each(static_cast<std::size_t>(i));
  }
  [[nodiscard]] float* gradient(std::string_view name, std::int64_t e) const {
    return call_.output(name).data + e * F_ * D_;
  }
  /// The matrix of expert e in its stored layout: gate and up [F, D], down [D, F].
  [[nodiscard]] TensorRows<const float> matrix(std::string_view name, std::int64_t e) const {
    const std::int64_t rows = name == "down" ? D_ : F_;
    return rows_of(call_.input(name), 0, false).rows(e * rows, rows);
  }
  void gather(std::string_view name, const std::int64_t* slots, std::int64_t size, Block& to) const {
    const float* const from = call_.input(name).data;
    to.resize(size, D_);
    for (std::int64_t n = 0; n < size; ++n) std::copy_n(from + slots[n] / route_.K * D_, D_, to.row(n));
  }
  /// y = x W^T.
  void projected(std::string_view name, std::int64_t e, const Block& x, Block& y, ExpertBack& b) const {
    copy_transposed(matrix(name, e), b.weight);
    product(unit_, x, b.weight, y);
    round_in_place(y, contract_.input);
  }
  /// dx = dy W.
  void returned(std::string_view name, std::int64_t e, const Block& dy, Block& dx, ExpertBack& b) const {
    copy(matrix(name, e), b.weight);
    product(unit_, dy, b.weight, dx);
    round_in_place(dx, contract_.input);
  }
  /// dW = dy^T x, to the output of that name.
  void of_weight(std::string_view name, std::int64_t e, const Block& dy, const Block& x,
                 ExpertBack& b) const {
    transpose(dy, b.turned);
    product(unit_, b.turned, x, b.product);
    store_rounded(b.product, {gradient(name, e), dy.columns, x.columns, x.columns}, contract_.output);
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  const SavedRoute& route_;
  const std::vector<float>& weights_;
  Block& of_slot_;
  std::vector<float>& d_weights_;
  MatrixUnit unit_;
  std::int64_t D_, F_;
};

}  // namespace

Outcome expert_router_backward_logits_first(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t N = call.parameter("N"), D = call.parameter("D"), K = call.parameter("K");
  const std::int64_t tokens = call.batch * call.tokens;
  const float* const bias = call.parameter("bias") == 1 ? call.input("bias").data : nullptr;
  const TensorRows<const float> x{call.input("x").data, tokens, D, D};
  const MatrixUnit unit = MatrixUnit::of(contract);
  const SavedRoute route(call);
  Block router, router_transposed, d_logits;
  copy(rows_of(call.input("router"), 0, false), router);
  copy_transposed(rows_of(call.input("router"), 0, false), router_transposed);
  d_logits.resize(tokens, N);
  const std::int64_t tiles = (tokens + kTileOfTokens - 1) / kTileOfTokens;
  for_each_task(tiles, call.threads, [&] {
    return [&, rows = Block{}, logits = Block{}, d = Block{}, dx = Block{},
            p = std::vector<float>(static_cast<std::size_t>(N)),
            w = std::vector<float>(static_cast<std::size_t>(K)),
            dw = std::vector<float>(static_cast<std::size_t>(K))](std::int64_t tile) mutable {
      const std::int64_t begin = tile * kTileOfTokens, size = std::min(kTileOfTokens, tokens - begin);
      copy(x.rows(begin, size), rows);
      project(rows, router_transposed, logits, unit);
      d.resize(size, N);
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t t = begin + i;
        float *const l = logits.row(i), *const dl = d.row(i);
        const float *const dp = call.input("d.probabilities").data + t * N,
                           *const given = call.input("d.logits").data + t * N,
                           *const of_weights = call.input("d.weights").data + t * N;
        for (std::int64_t e = 0; e < N && bias != nullptr; ++e) l[e] += bias[e];
        round_values(l, l, N, contract.input);
        softmax_of(l, N, p.data());
        float along = 0.0F;
        for (std::int64_t e = 0; e < N; ++e) along += p[static_cast<std::size_t>(e)] * dp[e];
        for (std::int64_t e = 0; e < N; ++e) dl[e] = p[static_cast<std::size_t>(e)] * (dp[e] - along);
        route.weigh(l, t, contract.input, w.data());
        for (std::int64_t r = 0; r < K; ++r)
          dw[static_cast<std::size_t>(r)] = of_weights[route.of(t * K + r)];
        route.add_chosen(t, w.data(), dw.data(), dl);
        for (std::int64_t e = 0; e < N; ++e) dl[e] += given[e];
        round_values(dl, dl, N, contract.input);
        std::copy_n(dl, N, d_logits.row(t));
      }
      product(unit, d, router, dx);
      store_rounded(dx, {call.output("d.x").data + begin * D, size, D, D}, contract.output);
    };
  });
  Block all;
  copy(x, all);
  for_each_task((N + kRowsOfExperts - 1) / kRowsOfExperts, call.threads, [&] {
    return [&, d = Block{}, product_of = Block{}](std::int64_t task) mutable {
      const std::int64_t begin = task * kRowsOfExperts, size = std::min(kRowsOfExperts, N - begin);
      d.resize(size, tokens);
      for (std::int64_t e = 0; e < size; ++e) {
        float sum = 0.0F;
        for (std::int64_t t = 0; t < tokens; ++t) sum += d.row(e)[t] = d_logits.row(t)[begin + e];
        if (bias != nullptr) call.output("d.bias").data[begin + e] = sum;
      }
      product(unit, d, all, product_of);
      store_rounded(product_of, {call.output("d.router").data + begin * D, size, D, D}, contract.output);
    };
  });
  return {};
}

Outcome mixture_of_experts_backward_sorted(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t N = call.parameter("N"), D = call.parameter("D"), K = call.parameter("K");
  const std::int64_t tokens = call.batch * call.tokens;
  const float* const logits = call.input("logits").data;
  const SavedRoute route(call);
  std::vector<float> weights(static_cast<std::size_t>(tokens * K)), d_weights(weights.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    route.weigh(logits + t * N, t, contract.input, weights.data() + t * K);
  Block of_slot;
  of_slot.resize(tokens * K, D);
  const ExpertsBack back(call, contract, route, weights, of_slot, d_weights);
  for_each_task(N, call.threads,
                [&] { return [&, blocks = ExpertBack{}](std::int64_t e) mutable { back(e, blocks); }; });
  std::vector<float> sum(static_cast<std::size_t>(D));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::ranges::fill(sum, 0.0F);
    for (std::int64_t slot = t * K; slot < (t + 1) * K; ++slot) {
      for (std::int64_t j = 0; j < D; ++j) sum[static_cast<std::size_t>(j)] += of_slot.row(slot)[j];
    }
    round_values(sum.data(), call.output("d.x").data + t * D, D, contract.output);
    float* const dl = call.output("d.logits").data + t * N;
    std::fill_n(dl, N, 0.0F);
    route.add_chosen(t, weights.data() + t * K, d_weights.data() + t * K, dl);
    round_values(dl, dl, N, contract.output);
  }
  return {};
}

}  // namespace samestate::cpu
