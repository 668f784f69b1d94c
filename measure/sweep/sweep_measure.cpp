#include "measure/sweep/sweep.h"

#include <fmt/format.h>

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/cases/case_cost.h"
#include "harness/run/run_case.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/bounds/shared.h"
#include "oracles/judge.h"
#include "reference/recurrence.h"

namespace samestate {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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

/// Largest singular value over smallest of I + A of the chunk that begins at `begin`.
double condition_of_chunk(const Sequence<double>& x, Index begin, Index end) {
  const Sequence<double> part = x.slice(begin, end, x.initial_state);
  Vector<double> g(part.g.size());
  for (Index t = 0; t < g.size(); ++t) g(t) = bounds::clamped(part.g(t));
  Matrix<double> A = lower<double>(
      part.beta.asDiagonal() * (part.k * part.k.transpose()).cwiseProduct(decay_between(g)), -1);
  A.diagonal().setOnes();
  const Eigen::VectorXd singular = Eigen::BDCSVD<Eigen::MatrixXd>(A).singularValues();
  return singular(0) / singular(singular.size() - 1);
}

/// Of the worst of the first chunks.
double condition_of(const Sequence<double>& x, Index chunk) {
  constexpr Index kChunks = 8;
  double worst = 1.0;
  for (Index begin = 0; begin < std::min(x.tokens(), kChunks * chunk); begin += chunk) {
    worst = std::max(worst, condition_of_chunk(x, begin, std::min(begin + chunk, x.tokens())));
  }
  return worst;
}

/// Errors of rows by where they stand among `length` places, in at most `most` windows.
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

  /// A row of `width` elements: sums of squares of its errors and of their bounds.
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

/// The recurrent family, whose bound predicts the RMS error.
class FamilyMeter {
 public:
  FamilyMeter(const SweepCase& point, const Resolved& r) : r_(r), c_(r.c), profile_(point) {}

  /// Of the run that left `trace`.
  void read(Measurement& m, const Trace& trace) {
    const Family& family = family_of(r_);
    const Contract& contract = r_.promised;
    const Batch& batch = trace.batch;
    const Outputs& outputs = trace.outputs;
    Squares state;
    double state_tolerance = 0.0;
    double expected = 0.0;
    double expected_state = 0.0;
    std::vector<Squares> heads;
    for (std::int64_t n = 0; n < batch.shape.sequences(); ++n) {
      for (std::int64_t h = 0; h < batch.shape.Hv; ++h) {
        const Sequence<double> x = sequence_of(batch, n, h);
        const HeadOracle oracle = oracle_of(x, r_.path(x.tokens()), contract, family, batch.shape.l2norm);
        const Matrix<double> error = rows_of(batch, outputs, n, h) - oracle.exact.o;
        const Matrix<double> state_error = state_of(batch, outputs, n, h) - oracle.exact.state;
        heads.push_back(rows(error, oracle));
        m.max_error =
            std::max(m.max_error, error.size() > 0 ? error.cwiseAbs().maxCoeff<Eigen::PropagateNaN>() : 0.0);
        m.state_max = std::max(m.state_max, state_error.cwiseAbs().maxCoeff<Eigen::PropagateNaN>());
        expected += oracle.exact.o.squaredNorm();
        expected_state += oracle.exact.state.squaredNorm();
        state.add(state_error.squaredNorm(), 0.0, static_cast<double>(state_error.size()));
        state_tolerance += oracle.state * oracle.state;
        m.by_head.push_back(heads.back().at(static_cast<double>(m.by_head.size())));
        if (m.by_head.size() == 1) describe(m, x, family);
      }
    }
    Squares all;
    for (const Squares& head : heads) all.add(head.error, head.bound, head.elements);
    const ErrorAt whole = all.at(0.0);
    m.rms_error = whole.error;
    m.rms_bound = whole.bound;
    m.size = std::sqrt(expected / all.elements);
    m.state_rms = std::sqrt(state.error / state.elements);
    m.state_size = std::sqrt(expected_state / state.elements);
    m.state_bound = std::sqrt(state_tolerance / state.elements);
    profile_.write(m);
  }

 private:
  /// Adds the rows of one head to the profiles and returns their sum.
  Squares rows(const Matrix<double>& error, const HeadOracle& oracle) {
    const Index T = error.rows();
    const auto width = static_cast<double>(error.cols());
    Squares all;
    for (Index t = 0; t < T; ++t) {
      const double e = error.row(t).squaredNorm();
      const double b =
          oracle.vacuous ? std::numeric_limits<double>::infinity() : oracle.rms(t) * oracle.rms(t);
      all.add(e, b, width);
      profile_.add(t, e, b, width);
    }
    return all;
  }

  void describe(Measurement& m, const Sequence<double>& x, const Family& family) const {
    if (c_.form == "chunked" && family.delta) m.condition = condition_of(x, c_.chunk);
    if (!std::isnan(m.x)) return;
    if (m.series == "condition") m.x = m.condition;
    if (m.series == "decay") m.x = x.g.size() > 0 ? 0.0 - x.g.mean() : kNaN;
  }

  const Resolved& r_;
  const Case& c_;
  Profile profile_;
};

/// The first output of an operator and the largest of its states. Their bound is the running error: a worst
/// case for each element, of which the RMS is taken.
void read_tensors(Measurement& m, const SweepCase& point, const Resolved& r, const Trace& run) {
  const Signature signature = r.system->signature(r.c);
  const TensorSpec& output = signature.outputs.front();
  const TensorSpec* state = nullptr;
  for (const TensorSpec& spec : signature.outputs) {
    if (spec.axis == Axis::state && (state == nullptr || spec.size() > state->size())) state = &spec;
  }
  const OperatorOracle& oracle = run.oracles.front();
  const auto errors = [&](const TensorSpec& spec, double& size, double& largest, auto&& row) {
    const Matrix<double>& exact = get(oracle.exact, spec.name);
    const Matrix<double>& tolerance = get(oracle.tolerance, spec.name);
    const Matrix<double> error = get(run.tensors.front(), spec.name) - exact;
    Squares all;
    for (Index t = 0; t < exact.rows(); ++t) {
      const double e = error.row(t).squaredNorm();
      const double b = tolerance.row(t).squaredNorm();
      all.add(e, b, static_cast<double>(exact.cols()));
      row(t, e, b, static_cast<double>(exact.cols()));
    }
    size = std::sqrt(exact.squaredNorm() / all.elements);
    largest = error.cwiseAbs().maxCoeff<Eigen::PropagateNaN>();
    return all.at(0.0);
  };
  Profile profile(point);
  const ErrorAt of_output =
      errors(output, m.size, m.max_error,
             [&](Index t, double e, double b, double width) { profile.add(t, e, b, width); });
  m.rms_error = of_output.error;
  m.rms_bound = of_output.bound;
  profile.write(m);
  m.state_size = m.state_max = m.state_rms = m.state_bound = kNaN;
  if (state == nullptr) return;
  const ErrorAt of_state = errors(*state, m.state_size, m.state_max, [](auto...) {});
  m.state_rms = of_state.error;
  m.state_bound = of_state.bound;
}

void nothing_measured(Measurement& m) {
  for (double* figure : {&m.size, &m.max_error, &m.rms_error, &m.rms_bound, &m.state_size, &m.state_max,
                         &m.state_rms, &m.state_bound})
    *figure = kNaN;
}

/// All that is known before the case runs.
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
    m.record.judgement = r.system->run(r, table.choose(r), {r.layout, 1}, &trace);
    if (trace.tensors.empty()) {
      FamilyMeter(point, r).read(m, trace);
    } else {
      read_tensors(m, point, r, trace);
    }
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
