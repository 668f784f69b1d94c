#include <functional>
#include <vector>

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/chunk.h"
#include "reference/backward/layers/mamba2.h"
#include "reference/backward/recurrence.h"
#include "reference/error.h"
#include "reference/layers/mamba2.h"
#include "reference/retention.h"

namespace samestate::mamba2_golden {
namespace {

using Run = std::function<StateSpaceOutput<double>(const StateSpaceHead<double>&)>;

Mamba2Weights<double> read_weights(const GoldenSource& s, Index D) {
  const Index H = s.integer("num_heads");
  const Index G = s.integer("n_groups");
  const Index N = s.integer("state_size");
  const Index P = s.integer("head_dim");
  constexpr Index kMost = 1 << 20;  // keeps the products below from overflowing
  if (H < 1 || G < 1 || N < 1 || P < 1 || H > kMost || G > kMost || N > kMost || P > kMost || H % G != 0) {
    throw Error(s.file_name + ": group " + s.group + ": num_heads " + std::to_string(H) + ", n_groups " +
                std::to_string(G) + ", state_size " + std::to_string(N) + ", head_dim " + std::to_string(P) +
                " must lie in 1.." + std::to_string(kMost) + ", groups dividing heads");
  }
  const Index Di = H * P;
  const Index channels = Di + 2 * G * N;
  s.require_shape("w.in_proj.weight", {Di + channels + H, D});
  s.require_shape("w.conv1d.weight", {channels, 1, -1});
  s.require_shape("w.conv1d.bias", {channels});
  for (const char* name : {"w.dt_bias", "w.A_log", "w.D"}) s.require_shape(name, {H});
  s.require_shape("w.norm.weight", {Di});
  s.require_shape("w.out_proj.weight", {D, Di});
  Mamba2Weights<double> w;
  w.groups = G;
  w.in_proj = s.matrix("w.in_proj.weight");
  w.conv1d = s.matrix("w.conv1d.weight");
  w.conv1d_bias = s.vector("w.conv1d.bias");
  w.dt_bias = s.vector("w.dt_bias");
  w.A_log = s.vector("w.A_log");
  w.skip = s.vector("w.D");
  w.norm = s.vector("w.norm.weight");
  w.out_proj = s.matrix("w.out_proj.weight");
  return w;
}

/// The head through the dual system (EQ-08).
StateSpaceOutput<double> through_retention(const StateSpaceHead<double>& x) {
  const Trajectory<double> dual = recurrent<Retention>(as_retention(x));
  return {dual.o + x.skip * x.x, dual.state.transpose()};
}

}  // namespace

void check(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const Index B = s.tensor("hidden_in").shape[0];
  const Index T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("hidden_out", {B, T, D});
  const Mamba2Weights<double> w = read_weights(s, D);
  const auto check = [&](const std::string& form, const std::vector<Index>& cuts, const Run& run) {
    Matrix<double> out(B * T, D);
    for (Index b = 0; b < B; ++b) {
      out.middleRows(b * T, T) =
          mamba2_resumed(s.matrix("hidden_in", b), w, empty_mamba2_cache(w), cuts, run).out;
    }
    s.check("hidden_out", form, out);
  };
  const auto chunked_by = [](Index chunk) -> Run {
    return [chunk](const StateSpaceHead<double>& x) { return state_space_chunked(x, chunk); };
  };
  check("recurrent", {}, state_space_recurrent<double>);
  check("quadratic", {}, state_space_quadratic<double>);
  check("retention", {}, through_retention);
  // The public chunk size, and others.
  for (const Index chunk : {s.integer("chunk_size"), Index{1}, Index{7}, Index{64}}) {
    check("chunked " + std::to_string(chunk), {}, chunked_by(chunk));
  }
  std::vector<Index> every;
  for (Index t = 1; t < T; ++t) every.push_back(t);
  check("decode", every, state_space_recurrent<double>);
  check("prefill, then decode", {every.begin() + static_cast<std::ptrdiff_t>(every.size() / 2), every.end()},
        chunked_by(7));
}

void check_backward(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const Index B = s.tensor("hidden_in").shape[0], T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("d.hidden_out", {B, T, D});
  const Mamba2Weights<double> w = read_weights(s, D);
  const auto check = [&](const std::string& form, const auto& run) {
    Matrix<double> hidden(B * T, D);
    Mamba2Weights<double> sum;
    for (Index b = 0; b < B; ++b) {
      const Mamba2Gradients<double> one = mamba2_backward<double>(
          s.matrix("hidden_in", b), w, empty_mamba2_cache(w), {s.matrix("d.hidden_out", b), {}}, run);
      hidden.middleRows(b * T, T) = one.hidden;
      const Mamba2Weights<double>& d = one.weights;
      if (b == 0) {
        sum = d;
        continue;
      }
      sum.in_proj += d.in_proj, sum.conv1d += d.conv1d, sum.conv1d_bias += d.conv1d_bias;
      sum.dt_bias += d.dt_bias, sum.A_log += d.A_log, sum.skip += d.skip, sum.norm += d.norm;
      sum.out_proj += d.out_proj;
    }
    s.check("d.hidden_in", form, hidden);
    s.check("d.w.in_proj.weight", form, sum.in_proj);
    s.check("d.w.conv1d.weight", form, sum.conv1d);
    s.check("d.w.conv1d.bias", form, Matrix<double>(sum.conv1d_bias));
    s.check("d.w.dt_bias", form, Matrix<double>(sum.dt_bias));
    s.check("d.w.A_log", form, Matrix<double>(sum.A_log));
    s.check("d.w.D", form, Matrix<double>(sum.skip));
    s.check("d.w.norm.weight", form, Matrix<double>(sum.norm));
    s.check("d.w.out_proj.weight", form, sum.out_proj);
  };
  check("recurrent", recurrent_backward<Retention, double>);
  for (const Index chunk : {1, 7, 64}) {
    check("chunked " + std::to_string(chunk),
          [chunk](const Sequence<double>& x, const HeadCotangents<double>& d) {
            return chunked_backward<Retention>(x, d, chunk);
          });
  }
}

}  // namespace samestate::mamba2_golden
