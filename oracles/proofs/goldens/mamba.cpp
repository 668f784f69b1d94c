#include <functional>
#include <vector>

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/layers/mamba.h"
#include "reference/error.h"
#include "reference/layers/mamba.h"

namespace samestate::mamba_golden {
namespace {

using Run = std::function<SelectiveScanOutput<double>(const SelectiveScan<double>&, Discretisation)>;

MambaWeights<double> read_weights(const GoldenSource& s, Index D) {
  const Index N = s.integer("state_size");
  const Index R = s.integer("time_step_rank");
  const Index W = s.integer("conv_kernel");
  s.require_shape("w.A_log", {-1, N});
  const Index Di = s.tensor("w.A_log").shape[0];
  if (Di < 1 || N < 1 || W < 1) {
    throw Error(s.file_name + ": group " + s.group +
                ": inner width, state_size and conv_kernel must be at least 1");
  }
  s.require_shape("w.in_proj.weight", {2 * Di, D});
  s.require_shape("w.conv1d.weight", {Di, 1, W});
  s.require_shape("w.conv1d.bias", {Di});
  s.require_shape("w.x_proj.weight", {R + 2 * N, Di});
  s.require_shape("w.dt_proj.weight", {Di, R});
  s.require_shape("w.dt_proj.bias", {Di});
  s.require_shape("w.D", {Di});
  s.require_shape("w.out_proj.weight", {D, Di});
  MambaWeights<double> w;
  w.in_proj = s.matrix("w.in_proj.weight");
  w.conv1d = s.matrix("w.conv1d.weight");
  w.conv1d_bias = s.vector("w.conv1d.bias");
  w.x_proj = s.matrix("w.x_proj.weight");
  w.dt_proj = s.matrix("w.dt_proj.weight");
  w.dt_bias = s.vector("w.dt_proj.bias");
  w.A_log = s.matrix("w.A_log");
  w.skip = s.vector("w.D");
  w.out_proj = s.matrix("w.out_proj.weight");
  return w;
}

}  // namespace

void check(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const Index B = s.tensor("hidden_in").shape[0];
  const Index T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("hidden_out", {B, T, D});
  const MambaWeights<double> w = read_weights(s, D);
  const auto check = [&](const std::string& form, const std::vector<Index>& cuts, const Run& run) {
    Matrix<double> out(B * T, D);
    for (Index b = 0; b < B; ++b) {
      out.middleRows(b * T, T) =
          mamba_resumed(s.matrix("hidden_in", b), w, empty_mamba_cache(w), cuts, run).out;
    }
    s.check("hidden_out", form, out);
  };
  check("recurrent", {}, selective_scan_recurrent<double>);
  check("Hillis-Steele", {}, selective_scan_hillis_steele<double>);
  check("Blelloch", {}, selective_scan_blelloch<double>);
  for (const Index chunk : {1, 7, 64}) {
    check("chunked " + std::to_string(chunk), {},
          [chunk](const SelectiveScan<double>& x, Discretisation mode) {
            return selective_scan_chunked(x, mode, chunk);
          });
  }
  std::vector<Index> every;
  for (Index t = 1; t < T; ++t) every.push_back(t);
  check("decode", every, selective_scan_recurrent<double>);
  check("prefill, then decode", {every.begin() + static_cast<std::ptrdiff_t>(every.size() / 2), every.end()},
        selective_scan_blelloch<double>);
}

void check_backward(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const Index B = s.tensor("hidden_in").shape[0], T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("d.hidden_out", {B, T, D});
  const MambaWeights<double> w = read_weights(s, D);
  Matrix<double> hidden(B * T, D);
  MambaWeights<double> sum;
  for (Index b = 0; b < B; ++b) {
    const MambaGradients<double> one = mamba_backward<double>(
        s.matrix("hidden_in", b), w, empty_mamba_cache(w), {s.matrix("d.hidden_out", b), {}});
    hidden.middleRows(b * T, T) = one.hidden;
    const MambaWeights<double>& d = one.weights;
    if (b == 0) {
      sum = d;
      continue;
    }
    sum.in_proj += d.in_proj, sum.conv1d += d.conv1d, sum.conv1d_bias += d.conv1d_bias;
    sum.x_proj += d.x_proj, sum.dt_proj += d.dt_proj, sum.dt_bias += d.dt_bias;
    sum.A_log += d.A_log, sum.skip += d.skip, sum.out_proj += d.out_proj;
  }
  s.check("d.hidden_in", "reverse", hidden);
  s.check("d.w.in_proj.weight", "reverse", sum.in_proj);
  s.check("d.w.conv1d.weight", "reverse", sum.conv1d);
  s.check("d.w.conv1d.bias", "reverse", Matrix<double>(sum.conv1d_bias));
  s.check("d.w.x_proj.weight", "reverse", sum.x_proj);
  s.check("d.w.dt_proj.weight", "reverse", sum.dt_proj);
  s.check("d.w.dt_proj.bias", "reverse", Matrix<double>(sum.dt_bias));
  s.check("d.w.A_log", "reverse", sum.A_log);
  s.check("d.w.D", "reverse", Matrix<double>(sum.skip));
  s.check("d.w.out_proj.weight", "reverse", sum.out_proj);
}

}  // namespace samestate::mamba_golden
