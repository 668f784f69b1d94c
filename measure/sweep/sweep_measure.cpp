#include "measure/sweep/sweep.h"

#include <fmt/format.h>

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/cases/case_cost.h"
#include "harness/run/run_case.h"
#include "oracles/bounds/shared.h"
#include "oracles/judge.h"
#include "oracles/numbers.h"
#include "reference/l2norm.h"
#include "reference/recurrence.h"

namespace samestate {
namespace {

/// Sums of squares over some elements.
struct Squares {
  double error = 0.0;
  double bound = 0.0;
  double elements = 0.0;

  void add(double error_squared, double bound_squared, double count) {
    error += error_squared;
    bound += bound_squared;
    elements += count;
  }
  [[nodiscard]] ErrorAt at(double position) const {
    return {position, std::sqrt(error / elements), std::sqrt(bound / elements)};
  }
};

/// The data of the triangular system of a delta rule, for the first head of the first sequence.
struct Keys {
  Matrix<double> k;  ///< [T, dk], normalised if the kernel does so
  Vector<double> beta, g;
};

const CaseTensor* find(const std::vector<CaseTensor>& tensors, Content content, std::string_view name) {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const CaseTensor& x) {
    return x.spec.content == content && x.spec.name == name;
  });
  return at == tensors.end() ? nullptr : &*at;
}

/// Returns column `column` of the first head's `T` rows; empty if there is no such tensor.
Vector<double> of_first_head(const CaseTensor* x, Index T, Index heads, Index width = 1, Index column = 0) {
  if (x == nullptr) return {};
  Vector<double> out(T);
  for (Index t = 0; t < T; ++t)
    out(t) = static_cast<double>(x->data[static_cast<std::size_t>(t * heads * width + column)]);
  return out;
}

Keys keys_of(const Resolved& r, const std::vector<CaseTensor>& inputs) {
  const Case& c = r.c;
  const Index T = c.lengths.empty() ? c.T : c.lengths.front();
  Keys out;
  out.beta = of_first_head(find(inputs, Content::strength, "beta"), T, c.Hv);
  out.g = of_first_head(find(inputs, Content::log_decay, "g"), T, c.Hv);
  if (const CaseTensor* k = find(inputs, Content::key, "k")) {
    out.k.resize(T, c.dk);
    for (Index i = 0; i < c.dk; ++i) out.k.col(i) = of_first_head(k, T, c.Hk, c.dk, i);
    if (c.l2norm) out.k = l2norm(out.k);
  }
  return out;
}

/// Returns the ratio of the largest to the smallest singular value of I + A for the rows [begin, end)
/// (GDN-17).
double condition_of_chunk(const Keys& x, Index begin, Index end) {
  const Index rows = end - begin;
  Vector<double> g = Vector<double>::Zero(rows);
  for (Index t = 0; t < rows && x.g.size() > 0; ++t) g(t) = bounds::clamped(x.g(begin + t));
  const Matrix<double> k = x.k.middleRows(begin, rows);
  Matrix<double> A = lower<double>(
      x.beta.segment(begin, rows).asDiagonal() * (k * k.transpose()).cwiseProduct(decay_between(g)), -1);
  A.diagonal().setOnes();
  const Eigen::VectorXd singular = Eigen::BDCSVD<Eigen::MatrixXd>(A).singularValues();
  return singular(0) / singular(singular.size() - 1);
}

/// Returns the worst condition among the first chunks.
double condition_of(const Keys& x, Index chunk) {
  constexpr Index kChunks = 8;
  double worst = 1.0;
  for (Index begin = 0; begin < std::min(x.k.rows(), kChunks * chunk); begin += chunk)
    worst = std::max(worst, condition_of_chunk(x, begin, std::min(begin + chunk, x.k.rows())));
  return worst;
}

/// Errors of rows by their place among `length` places, in at most `most` windows.
class Windows {
 public:
  Windows(Index length, Index most) : width_(std::max<Index>(1, (length + most - 1) / most)) {}

  void add(Index place, double error, double bound, double width) {
    const auto at = static_cast<std::size_t>(place / width_);
    if (windows_.size() <= at) windows_.resize(at + 1);
    windows_[at].add(error, bound, width);
  }
  [[nodiscard]] std::vector<ErrorAt> means() const {
    std::vector<ErrorAt> out;
    for (const Squares& window : windows_)
      out.push_back(window.at(static_cast<double>(std::ssize(out) * width_)));
    return out;
  }

 private:
  Index width_;
  std::vector<Squares> windows_;
};

/// The same by token and by position in the chunk.
class Profile {
 public:
  explicit Profile(const SweepCase& point)
      : chunk_(point.c.form == "chunked" ? point.c.chunk : 0),
        tokens_(point.c.T, point.profile),
        positions_(std::min(chunk_, point.c.T), point.profile) {}

  /// Adds a row of `width` elements: the sums of squares of its errors and of their bounds.
  void add(Index token, double error, double bound, double width) {
    tokens_.add(token, error, bound, width);
    if (chunk_ > 0) positions_.add(token % chunk_, error, bound, width);
  }
  void write(Measurement& m) const {
    m.by_token = tokens_.means();
    m.by_chunk_position = positions_.means();
  }

 private:
  Index chunk_;
  Windows tokens_, positions_;
};

/// Stores what is known of the inputs, for the series that varies it.
void describe(Measurement& m, const Resolved& r, const std::vector<CaseTensor>& inputs) {
  const Keys x = keys_of(r, inputs);
  if (r.form->name == "chunked" && x.beta.size() > 0 && x.k.size() > 0)
    m.condition = condition_of(x, r.chunk);
  if (!std::isnan(m.x)) return;
  if (m.series == "condition") m.x = m.condition;
  if (m.series == "decay") m.x = x.g.size() > 0 ? 0.0 - x.g.mean() : kNaN;
}

/// The errors of one output, all sequences and heads together.
struct OutputErrors {
  Squares all;
  double expected = 0.0, largest = 0.0;

  void add(const Held& held, auto&& row) {
    const Matrix<double> error = held.actual - held.exact;
    const auto width = static_cast<double>(error.cols());
    Squares part;
    for (Index t = 0; t < error.rows(); ++t) {
      const double e = error.row(t).squaredNorm();
      part.add(e, held.allowed(t), width);
      row(t, e, held.allowed(t), width);
    }
    all.add(part.error, part.bound, part.elements);
    expected += held.exact.squaredNorm();
    if (error.size() > 0) largest = std::max(largest, error.cwiseAbs().maxCoeff<Eigen::PropagateNaN>());
    last = part;
  }
  [[nodiscard]] double size() const { return std::sqrt(expected / all.elements); }
  Squares last;  ///< the value that was added last
};

/// Reads the point's output, or the first output and the largest state.
void read(Measurement& m, const SweepCase& point, const Resolved& r, const Trace& trace) {
  const Signature signature = r.system->signature(r.c);
  const TensorSpec* state = nullptr;
  const TensorSpec* first = &signature.outputs.front();
  for (const TensorSpec& spec : signature.outputs) {
    if (spec.name == point.output) first = &spec;
    if (point.output.empty() && spec.axis == Axis::state && (state == nullptr || spec.size() > state->size()))
      state = &spec;
  }
  Profile profile(point);
  OutputErrors output, of_state;
  for (const Held& held : r.system->held(r, trace)) {
    if (held.output == first->name) {
      const Index heads = std::max<Index>(1, held.actual.rows() / std::max<Index>(1, point.c.T));
      output.add(held, [&](Index row, double e, double b, double width) {
        if (first->axis == Axis::tokens) profile.add(row / heads, e, b, width);
      });
      if (held.head >= 0) m.by_head.push_back(output.last.at(static_cast<double>(m.by_head.size())));
    } else if (state != nullptr && held.output == state->name) {
      of_state.add(held, [](auto...) {});
    }
  }
  describe(m, r, trace.inputs);
  const ErrorAt whole = output.all.at(0.0);
  m.rms_error = whole.error;
  m.rms_bound = whole.bound;
  m.size = output.size();
  m.max_error = output.largest;
  profile.write(m);
  m.state_size = m.state_max = m.state_rms = m.state_bound = kNaN;
  if (state == nullptr) return;
  const ErrorAt left = of_state.all.at(0.0);
  m.state_rms = left.error;
  m.state_bound = left.bound;
  m.state_size = of_state.size();
  m.state_max = of_state.largest;
}

void nothing_measured(Measurement& m) {
  for (double* figure : {&m.size, &m.max_error, &m.rms_error, &m.rms_bound, &m.state_size, &m.state_max,
                         &m.state_rms, &m.state_bound})
    *figure = kNaN;
}

/// Returns everything that is known before the case runs.
Measurement planned_point(const SweepCase& point, const KernelTable& table) {
  Measurement m;
  m.series = point.series;
  m.curve = point.curve;
  m.x = point.x;
  m.record = planned_record(point.c, table);
  const Resolved r(point.c);
  const CaseCost cost = r.system->cost(r, false);
  m.tokens = point.c.T;
  m.flops = cost.token_operations;
  m.bytes = cost.token_bytes;
  m.condition = kNaN;
  return m;
}

}  // namespace

Measurement measure(const SweepCase& point, const KernelTable& table) {
  Measurement m = planned_point(point, table);
  bool measured = false;
  set_judgement(m.record, [&] {
    Trace trace;
    const Resolved r(point.c);
    m.record.policy = kGatePolicy.name;
    m.record.judgement = r.system->run(r, table.choose(r), run_options(r), kGatePolicy, &trace);
    read(m, point, r, trace);
    measured = true;
    return m.record.judgement;
  });
  if (!measured || m.record.judgement.verdict == Verdict::crash) nothing_measured(m);
  return m;
}

Measurement unmeasured(const SweepCase& point, const KernelTable& table, Judgement judgement) {
  Measurement m = planned_point(point, table);
  m.record.judgement = std::move(judgement);
  nothing_measured(m);
  return m;
}

}  // namespace samestate
