#include <functional>

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/chunk.h"
#include "reference/backward/layers/gated_delta_net.h"
#include "reference/backward/recurrence.h"
#include "reference/error.h"
#include "reference/layers/gated_delta_net.h"

namespace samestate::gated_delta_net_golden {
namespace {

using Run = std::function<Trajectory<double>(const Sequence<double>&)>;

struct Layer {
  GatedDeltaNetShape shape;
  GatedDeltaNetWeights<double> weights;
};

/// The layer's extents follow from its tensors: Hv from A_log, dk and dv from the state, Hk from the channels
/// of the convolution.
Layer read_layer(const GoldenSource& s) {
  s.require_shape("prefill_recurrent_state", {-1, -1, -1, -1});
  const Tensor& state = s.tensor("prefill_recurrent_state");
  s.require_shape("w.conv1d.weight", {-1, 1, -1});
  const Tensor& kernel = s.tensor("w.conv1d.weight");
  Layer layer;
  layer.shape.value_heads = state.shape[1];
  layer.shape.key_width = state.shape[2];
  layer.shape.value_width = state.shape[3];
  const Index keys = (kernel.shape[0] - layer.shape.values()) / 2;
  if (keys < 1 || layer.shape.key_width < 1 || keys % layer.shape.key_width != 0) {
    throw Error(s.file_name + ": group " + s.group + ": the convolution's " +
                std::to_string(kernel.shape[0]) + " channels are not 2 Hk dk + Hv dv");
  }
  layer.shape.key_heads = keys / layer.shape.key_width;
  layer.weights = {s.matrix("w.in_proj_qkvz.weight"),
                   s.matrix("w.in_proj_ba.weight"),
                   s.matrix("w.conv1d.weight"),
                   s.vector("w.A_log"),
                   s.vector("w.dt_bias"),
                   s.vector("w.norm.weight"),
                   s.matrix("w.out_proj.weight")};
  return layer;
}

/// Rows of one batch entry, written below those of the entries before it, as GoldenSource::matrix flattens.
void put(Matrix<double>& all, Index b, const Matrix<double>& rows) {
  all.middleRows(b * rows.rows(), rows.rows()) = rows;
}

void check_states(const GoldenSource& s, const std::string& stem, const std::string& form,
                  const std::vector<GatedDeltaNetCache<double>>& caches,
                  const std::vector<Matrix<double>>& convolution) {
  const Index B = static_cast<Index>(caches.size());
  const Index heads = static_cast<Index>(caches[0].state.size());
  const Matrix<double>& first = caches[0].state[0];
  Matrix<double> states(B * heads * first.rows(), first.cols());
  Matrix<double> stored(B * convolution[0].rows(), convolution[0].cols());
  for (Index b = 0; b < B; ++b) {
    const auto at = static_cast<std::size_t>(b);
    for (Index h = 0; h < heads; ++h)
      put(states, b * heads + h, caches[at].state[static_cast<std::size_t>(h)]);
    put(stored, b, convolution[at]);
  }
  s.check(stem + "_recurrent_state", form, states);
  s.check(stem + "_conv_state", form, stored);
}

/// One pass over all tokens; prefill and then token by token, or the rest at once.
void check_form(const GoldenSource& s, const Layer& layer, const std::string& form, const Run& run) {
  const Tensor& input = s.tensor("hidden_in");
  const Index B = input.shape[0];
  const Index T = input.shape[1];
  const Index D = input.shape[2];
  const Index prefill = s.integer("prefill_len");
  const Index decoded = T - prefill;
  const auto& [shape, weights] = layer;
  Matrix<double> whole(B * T, D);
  Matrix<double> prefilled(B * prefill, D);
  Matrix<double> tokens(B * decoded, D);
  Matrix<double> rest(B * decoded, D);
  std::vector<GatedDeltaNetCache<double>> after_prefill;
  std::vector<GatedDeltaNetCache<double>> after_decode;
  std::vector<GatedDeltaNetCache<double>> after_rest;
  std::vector<Matrix<double>> stored_prefill;
  std::vector<Matrix<double>> stored_decode;
  for (Index b = 0; b < B; ++b) {
    const Matrix<double> x = s.matrix("hidden_in", b);
    put(whole, b, gated_delta_net(x, weights, shape, empty_gated_delta_net_cache(shape, weights), run).y);

    const auto head = gated_delta_net<double>(x.topRows(prefill), weights, shape,
                                              empty_gated_delta_net_cache(shape, weights), run);
    put(prefilled, b, head.y);
    after_prefill.push_back(head.cache);
    stored_prefill.push_back(stored_convolution_state<double>(
        Matrix<double>::Zero(shape.channels(), weights.conv1d.cols()), head.mixed));

    GatedDeltaNetCache<double> cache = head.cache;
    Matrix<double> stored = stored_prefill.back();
    for (Index t = 0; t < decoded; ++t) {
      const auto one = gated_delta_net<double>(x.row(prefill + t), weights, shape, cache, run);
      tokens.row(b * decoded + t) = one.y;
      stored = stored_convolution_state<double>(stored, one.mixed);
      cache = one.cache;
    }
    after_decode.push_back(std::move(cache));
    stored_decode.push_back(std::move(stored));

    const auto tail = gated_delta_net<double>(x.bottomRows(decoded), weights, shape, head.cache, run);
    put(rest, b, tail.y);
    after_rest.push_back(tail.cache);
  }
  s.check("hidden_out", form, whole);
  s.check("prefill_out", form, prefilled);
  check_states(s, "prefill", form, after_prefill, stored_prefill);
  s.check("decode_out", form + ", token by token", tokens);
  check_states(s, "decode", form + ", token by token", after_decode, stored_decode);
  s.check("decode_out", form + ", the rest at once", rest);
  check_states(s, "decode", form + ", the rest at once", after_rest, stored_decode);
}

}  // namespace

void check(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const std::vector<std::int64_t> extents = s.tensor("hidden_in").shape;
  const Index B = extents[0];
  const Index T = extents[1];
  const Index D = extents[2];
  const Index prefill = s.integer("prefill_len");
  if (B < 1 || prefill > T) {
    throw Error(s.file_name + ": group " + s.group + ": a batch of " + std::to_string(B) + ", prefill_len " +
                std::to_string(prefill) + " of " + std::to_string(T) +
                " tokens; needs a batch and a prefill within");
  }
  const Layer layer = read_layer(s);
  const GatedDeltaNetShape& shape = layer.shape;
  const Index W = layer.weights.conv1d.cols();
  s.require_shape("w.in_proj_qkvz.weight", {-1, D});
  s.require_shape("w.in_proj_ba.weight", {-1, D});
  s.require_shape("w.out_proj.weight", {D, -1});
  s.require_shape("hidden_out", {B, T, D});
  s.require_shape("prefill_out", {B, prefill, D});
  s.require_shape("decode_out", {B, T - prefill, D});
  for (const std::string stem : {"prefill", "decode"}) {
    s.require_shape(stem + "_recurrent_state", {B, shape.value_heads, shape.key_width, shape.value_width});
    s.require_shape(stem + "_conv_state", {B, shape.channels(), W});
  }
  check_form(s, layer, "recurrent", [](const Sequence<double>& x) { return recurrent<GatedDeltaRule>(x); });
  for (const Index chunk : {1, 7, 64}) {
    check_form(s, layer, "chunked " + std::to_string(chunk),
               [chunk](const Sequence<double>& x) { return chunked<GatedDeltaRule>(x, chunk); });
  }
}

void check_backward(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const Index B = s.tensor("hidden_in").shape[0], T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("d.hidden_out", {B, T, D});
  const Layer layer = read_layer(s);
  const auto check = [&](const std::string& form, const Run& forward, const auto& run) {
    Matrix<double> hidden(B * T, D);
    GatedDeltaNetWeights<double> sum;
    for (Index b = 0; b < B; ++b) {
      const GatedDeltaNetGradients<double> one =
          gated_delta_net_backward<double>(s.matrix("hidden_in", b), layer.weights, layer.shape,
                                           empty_gated_delta_net_cache(layer.shape, layer.weights),
                                           {s.matrix("d.hidden_out", b), {}}, forward, run);
      put(hidden, b, one.x);
      const GatedDeltaNetWeights<double>& d = one.weights;
      if (b == 0) {
        sum = d;
        continue;
      }
      sum.in_proj_qkvz += d.in_proj_qkvz, sum.in_proj_ba += d.in_proj_ba, sum.conv1d += d.conv1d;
      sum.A_log += d.A_log, sum.dt_bias += d.dt_bias, sum.norm += d.norm, sum.out_proj += d.out_proj;
    }
    s.check("d.hidden_in", form, hidden);
    s.check("d.w.in_proj_qkvz.weight", form, sum.in_proj_qkvz);
    s.check("d.w.in_proj_ba.weight", form, sum.in_proj_ba);
    s.check("d.w.conv1d.weight", form, sum.conv1d);
    s.check("d.w.A_log", form, Matrix<double>(sum.A_log));
    s.check("d.w.dt_bias", form, Matrix<double>(sum.dt_bias));
    s.check("d.w.norm.weight", form, Matrix<double>(sum.norm));
    s.check("d.w.out_proj.weight", form, sum.out_proj);
  };
  check("recurrent", recurrent<GatedDeltaRule, double>, recurrent_backward<GatedDeltaRule, double>);
  for (const Index chunk : {1, 7, 64}) {
    check(
        "chunked " + std::to_string(chunk),
        [chunk](const Sequence<double>& x) { return chunked<GatedDeltaRule>(x, chunk); },
        [chunk](const Sequence<double>& x, const HeadCotangents<double>& d) {
          return chunked_backward<GatedDeltaRule>(x, d, chunk);
        });
  }
}

}  // namespace samestate::gated_delta_net_golden
