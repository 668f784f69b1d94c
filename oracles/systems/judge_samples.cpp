#include "oracles/systems/judge_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "oracles/numbers.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

/// The x that Student's t with n degrees of freedom exceeds with probability p.
double t_quantile(double p, int n) {
  thread_local std::map<std::pair<double, int>, double> known;
  const auto [at, fresh] = known.try_emplace({p, n}, 0.0);
  if (fresh) at->second = quantile(complement(boost::math::students_t(n), p));
  return at->second;
}

struct Finding {
  double ratio = 0.0;
  double value = 0.0;
  double limit = 0.0;
  const char* name = "";
  Index row = -1;
  Index column = -1;
};

/// The statistics of one output. Rows that are left out have been removed before.
class Population {
 public:
  Population(const Matrix<double>& y, const Vector<double>& floor, std::vector<Matrix<double>> errors)
      : y_(y),
        floor_(floor.cwiseAbs2()),
        errors_(std::move(errors)),
        N_(static_cast<double>(errors_.size())) {
    row_total_ = Vector<double>::Zero(y.rows());
    element_total_ = Matrix<double>::Zero(y.rows(), y.cols());
    for (const Matrix<double>& e : errors_) {
      row_total_ += mean_squares(e);
      element_total_ += e.cwiseAbs2();
    }
    const Scales all = scales(nullptr);
    column_total_ = Vector<double>::Zero(y.cols());
    for (const Matrix<double>& e : errors_) column_total_ += column_means(e, all.row);
    for (const Matrix<double>& e : errors_) {
      Scales others = scales(&e);
      others.column = columns(&e, all.row);
      samples_.push_back(statistics(e, others));
    }
  }

  /// The worst statistic of an error [rows, columns] beyond `slack`; `e` is the part of each element beyond
  /// it. The slope is that of the whole error, minus what the slack can contribute: the part of an error
  /// across y that is lost per element lies along y.
  [[nodiscard]] Finding judge(const Matrix<double>& e, const Matrix<double>& error,
                              const Matrix<double>& slack, SampledLimit of) const {
    Scales all = scales(nullptr);
    all.column = columns(nullptr, all.row);
    Statistics of_kernel = statistics(e, all);
    if (error.allFinite()) {
      const double allowed = slope_of(all.row, y_.cwiseAbs(), slack);
      of_kernel.value[kSlope] =
          std::isfinite(allowed) ? std::max(slope_of(all.row, y_, error) - allowed, 0.0) : 0.0;
    }
    Finding worst;
    for (std::size_t k = 0; k < kNames.size(); ++k) {
      const double limit = of == SampledLimit::largest ? kSampledMargin * largest(k)
                           : k == kSlope               ? slope_limit()
                                                       : limit_of(k);
      const double value = of_kernel.value[k];
      const double ratio = value == 0.0 ? 0.0 : std::isfinite(value) ? value / limit : kInfinity;
      if (!(ratio <= worst.ratio))
        worst = {ratio, value, limit, kNames[k], of_kernel.row[k], of_kernel.column[k]};
    }
    return worst;
  }

  /// The error that the element statistic accepts.
  [[nodiscard]] Matrix<double> element_tolerance() const {
    return limit_of(2) * scales(nullptr).element.cwiseSqrt();
  }

  /// The RMS of the error that the tensor statistic accepts.
  [[nodiscard]] double tolerance(SampledLimit of) const {
    const double limit = of == SampledLimit::largest ? kSampledMargin * largest(0) : limit_of(0);
    return limit * std::sqrt(scales(nullptr).row.mean());
  }

 private:
  static constexpr std::array<const char*, 5> kNames = {"tensor", "row", "element", "column", "slope"};
  static constexpr std::size_t kSlope = 4;

  struct Scales {  // variances
    Vector<double> row;
    Matrix<double> element;
    Vector<double> column;
  };
  struct Statistics {
    std::array<double, 5> value{};
    std::array<Index, 5> row{-1, -1, -1, -1, -1};
    std::array<Index, 5> column{-1, -1, -1, -1, -1};
  };

  [[nodiscard]] static Vector<double> mean_squares(const Matrix<double>& e) {
    return e.cwiseAbs2().rowwise().mean();
  }
  [[nodiscard]] static Vector<double> column_means(const Matrix<double>& e, const Vector<double>& row) {
    return (row.cwiseInverse().asDiagonal() * e.cwiseAbs2()).colwise().mean().transpose();
  }

  /// Computed from all samples, or from all except one, so that each sample is as independent of its scales
  /// as the kernel is.
  [[nodiscard]] Scales scales(const Matrix<double>* without) const {
    const double n = without ? N_ - 1.0 : N_;
    Vector<double> row = row_total_;
    Matrix<double> element = element_total_;
    if (without) {
      row -= mean_squares(*without);
      element -= without->cwiseAbs2();
    }
    row = (row / n).cwiseMax(0.0);
    element =
        ((element.cwiseMax(0.0).colwise() + kSampledPrior * row) / (n + kSampledPrior)).colwise() + floor_;
    return {row + floor_, std::move(element), {}};
  }
  [[nodiscard]] Vector<double> columns(const Matrix<double>* without, const Vector<double>& row) const {
    const double n = without ? N_ - 1.0 : N_;
    Vector<double> total = column_total_;
    if (without) total = (total - column_means(*without, row)).cwiseMax(0.0);
    return ((total.array() + kSampledPrior * total.mean() / n) / (n + kSampledPrior) + 1e-30).matrix();
  }

  [[nodiscard]] Statistics statistics(const Matrix<double>& e, const Scales& v) const {
    Statistics s;
    const Vector<double> rows = mean_squares(e).cwiseQuotient(v.row);
    s.value[0] = std::sqrt(rows.mean());
    s.value[1] = std::sqrt(rows.maxCoeff(&s.row[1]));
    s.value[2] = std::sqrt(e.cwiseAbs2().cwiseQuotient(v.element).maxCoeff(&s.row[2], &s.column[2]));
    s.value[3] = std::sqrt(column_means(e, v.row).cwiseQuotient(v.column).maxCoeff(&s.column[3]));
    s.value[kSlope] = slope_of(v.row, y_, e);
    return s;
  }
  /// |<e, along>| / <y, y>, with rows weighted by their variances.
  [[nodiscard]] double slope_of(const Vector<double>& row, const Matrix<double>& along,
                                const Matrix<double>& e) const {
    const auto weight = row.cwiseInverse().asDiagonal();
    const double size = (weight * y_).cwiseProduct(y_).sum();
    return size > 0.0 ? std::abs((weight * along).cwiseProduct(e).sum()) / size : 0.0;
  }

  [[nodiscard]] double largest(std::size_t k) const {
    double most = 0.0;
    for (const Statistics& s : samples_) most = std::max(most, s.value[k]);
    return most;
  }
  [[nodiscard]] double limit_of(std::size_t k) const {
    double sum = 0.0;
    double squares = 0.0;
    for (const Statistics& s : samples_) sum += std::log(std::max(s.value[k], 1e-12));
    const double mean = sum / N_;
    for (const Statistics& s : samples_) squares += square(std::log(std::max(s.value[k], 1e-12)) - mean);
    const double spread = std::max(std::sqrt(squares / (N_ - 1.0)), kSampledSpread);
    const double t = t_quantile(kSampledFalseAlarm, static_cast<int>(N_) - 1);
    const double exponent = std::min(mean + t * spread * std::sqrt(1.0 + 1.0 / N_), 50.0);
    return std::max(std::exp(exponent), kSampledMargin * largest(k));
  }
  [[nodiscard]] double slope_limit() const {
    double squares = 0.0;
    for (const Statistics& s : samples_) squares += square(s.value[kSlope]);
    const double spread = std::max(std::sqrt(squares / N_), 0x1p-23);
    const double t = t_quantile(kSampledFalseAlarm / 2.0, static_cast<int>(N_));
    return std::max(t * spread, kSampledMargin * largest(kSlope));
  }
  [[nodiscard]] static double square(double x) { return x * x; }

  Matrix<double> y_;
  Vector<double> floor_;  ///< variance
  std::vector<Matrix<double>> errors_;
  double N_;
  Vector<double> row_total_;
  Matrix<double> element_total_;
  Vector<double> column_total_;
  std::vector<Statistics> samples_;
};

/// The part of the error beyond `slack`; a value that is not finite stays infinite, since every sample is
/// finite.
Matrix<double> beyond(const Matrix<double>& e, const Matrix<double>& slack) {
  return e.binaryExpr(slack, [](double x, double s) {
    if (!std::isfinite(x)) return kInfinity;
    return std::abs(x) <= s ? 0.0 : std::copysign(std::abs(x) - s, x);
  });
}

/// The smallest variance of an error that is believed, by row.
Vector<double> floor_of(const Matrix<double>& expected) {
  return (4.0 * 0x1p-24 * expected.cwiseAbs2().rowwise().mean().cwiseSqrt()).array() + 1e-36;
}

/// The worst case of the roundings between rounding points; empty if there are no points.
Tensors<double> between_points(const TwinSubject& of) {
  Tensors<double> between;
  if (!of.oracle.points) {
    for (const auto& [name, exact] : of.oracle.exact)
      between.emplace(name, Matrix<double>::Zero(exact.rows(), exact.cols()));
    return between;
  }
  RunningModel model = RunningModel::between_points(of.contract);
  model.tiny *= of.op.late_factors;
  const RunningScope scope(model);
  for (const auto& [name, x] : evaluate(of.op.running, of.op, of.call, of.inputs, of.cuts))
    between.emplace(name, x.unaryExpr([](const Running& e) { return e.error(); }));
  return between;
}

/// True if the worst case between the points alone leaves nothing known about any output.
bool hides_all(const OperatorOracle& oracle, const Tensors<double>& between) {
  return std::ranges::all_of(oracle.exact, [&](const auto& output) {
    const auto& [name, y] = output;
    return y.size() == 0 || !(get(between, name).norm() <= kVacuousOutput * y.norm());
  });
}

/// Errors of samples; with `every`, including the roundings between the points.
std::vector<Tensors<double>> samples_of(const TwinSubject& of, bool every, std::uint64_t seed, int first,
                                        int count, const SoftmaxOrder& softmax = {}) {
  const auto errors = [&](const auto& values) {
    Tensors<double> minus;
    for (const auto& [name, x] : values) {
      if (!of.oracle.exact.contains(name)) continue;  // some tokens' oracle has no sums over all tokens
      const Matrix<double> kept = x.unaryExpr([format = of.oracle.format(name, of.contract.output)](
                                                  const auto& e) { return kept_in(e.value(), format); });
      minus.emplace(name, kept - get(of.oracle.exact, name));
    }
    return minus;
  };
  std::vector<Tensors<double>> samples;
  // Inputs are the same in all samples, because a layer's weights in such scalars fill a gigabyte.
  const auto draw = [&]<class Scalar>(Tensors<Scalar> (*row)(const Call&, const Tensors<Scalar>&)) {
    const std::vector<Tensors<Scalar>> sequence = alone(as<Scalar>(of.inputs));
    for (int n = first; n < first + count; ++n) {
      SampledModel model = SampledModel::sample(of.contract, seed, n);
      model.softmax = softmax;
      const SamplingScope scope(model);
      const auto run = [&](const Call& one, const std::vector<Tensors<Scalar>>& part) {
        return alone(row(one, part.front()));
      };
      samples.push_back(errors(evaluate_in_calls<Scalar>(of.op, of.call, sequence, of.cuts, run).front()));
    }
  };
  if (every) {
    draw(of.op.stochastic);
  } else {
    draw(of.op.stored);
  }
  return samples;
}

/// The given rows of x.
Matrix<double> rows_of(const Matrix<double>& x, const std::vector<Index>& rows) {
  return x(rows, Eigen::all);
}

}  // namespace

bool has_samples(const Contract& contract) {
  const SampledModel twin = SampledModel::twin(contract);
  return twin.kept != Format::none || twin.operand != Format::none;
}

SampledErrors sample_errors(const Operator& op, const Call& call, const Tensors<double>& inputs,
                            const std::vector<Index>& cuts, const Contract& contract,
                            const OperatorOracle& oracle, std::uint64_t seed, int first, int count) {
  const TwinSubject of{op, call, inputs, cuts, contract, oracle};
  return {samples_of(of, !oracle.points, seed, first, count), between_points(of)};
}

Tensors<double> sampled_tolerances(const OperatorOracle& oracle, const SampledErrors& errors) {
  Tensors<double> out = oracle.tolerance;
  for (auto& [name, tolerance] : out) {
    std::vector<Matrix<double>> samples;
    bool in_range = tolerance.size() > 0;
    for (const Tensors<double>& sample : errors.samples) {
      samples.push_back(get(sample, name));
      in_range = in_range && samples.back().allFinite();
    }
    if (!in_range) continue;
    const Matrix<double>& y = get(oracle.exact, name);
    const Population population(y, floor_of(y), std::move(samples));
    const Matrix<double> sampled = population.element_tolerance() + get(errors.between, name);
    const Matrix<bool>& undecided = get(oracle.undecided, name);
    for (Index r = 0; r < y.rows(); ++r) {
      if (undecided(r, 0) || oracle.row_may_overflow(name, r)) continue;
      tolerance.row(r) = tolerance.row(r).cwiseMin(sampled.row(r));
    }
  }
  return out;
}

Judgement judge_samples(const OperatorOracle& oracle, const SampledErrors& errors,
                        const Tensors<double>& actual, SampledLimit limit) {
  Judgement judgement;
  judgement.gate = "sampled";
  std::string unknown;
  bool says = false;
  bool judged = false;
  for (const auto& [name, y] : oracle.exact) {
    const Matrix<double>& slack = get(errors.between, name);
    const Matrix<bool>& undecided = get(oracle.undecided, name);
    const Matrix<double> error = get(actual, name) - y;
    // Rows without any error in kernel and samples prove nothing.
    std::vector<Matrix<double>> samples;
    bool in_range = true;
    for (const Tensors<double>& sample : errors.samples) {
      samples.push_back(get(sample, name));
      in_range = in_range && samples.back().allFinite();
    }
    if (!in_range || y.size() == 0) continue;
    const Matrix<double> e = beyond(error, slack);
    std::vector<Index> live;
    for (Index r = 0; r < y.rows(); ++r) {
      if (undecided(r, 0) || oracle.row_may_overflow(name, r)) continue;
      bool differs = (e.row(r).array() != 0.0).any();
      for (std::size_t n = 0; n < samples.size() && !differs; ++n)
        differs = (samples[n].row(r).array() != 0.0).any();
      if (differs) live.push_back(r);
    }
    if (live.empty()) continue;
    judged = true;
    const Matrix<double> expected = rows_of(y, live);
    for (Matrix<double>& sample : samples) sample = rows_of(sample, live);
    const Population population(expected, floor_of(expected), std::move(samples));
    const Finding found =
        population.judge(rows_of(e, live), rows_of(error, live), rows_of(slack, live), limit);
    const double size = std::sqrt(expected.cwiseAbs2().mean());
    const double slack_size = std::sqrt(rows_of(slack, live).cwiseAbs2().mean());
    const bool known = population.tolerance(limit) + slack_size <= kVacuousOutput * size;
    says = says || known;
    if (!known) unknown += (unknown.empty() ? "" : ", ") + name;
    if (!(found.ratio > judgement.ratio)) continue;
    judgement.ratio = found.ratio;
    judgement.error = found.value;
    judgement.bound = found.limit;
    judgement.gate = fmt::format("sampled {}", found.name);
    judgement.reason = fmt::format("output {}", name);
    const Index row = found.row < 0 ? -1 : live[static_cast<std::size_t>(found.row)];
    const bool element = row >= 0 && found.column >= 0;
    judgement.worst = oracle.place(name, row, found.column);
    judgement.expected = element ? y(row, found.column) : kNaN;
    judgement.actual = element ? get(actual, name)(row, found.column) : kNaN;
  }
  judgement.sampled_ratio = judgement.ratio;
  if (judgement.ratio > 1.0) {
    judgement.verdict = Verdict::fail;
    judgement.reason += ": an error that roundings of the contract do not make";
  } else if (!judged) {
    judgement.verdict = Verdict::vacuous;
    judgement.reason = "nothing rounds in any sample";
  } else if (!says) {
    judgement.verdict = Verdict::vacuous;
    judgement.reason =
        fmt::format("what drawn roundings do to every output is above {} of its size", kVacuousOutput);
  } else {
    judgement.verdict = Verdict::pass;
    judgement.reason = unknown.empty()
                           ? ""
                           : fmt::format("drawn roundings above {} of its size: {}", kVacuousOutput, unknown);
  }
  return judgement;
}

Judgement judge_sampled(const Operator& op, const Call& call, const Tensors<double>& inputs,
                        const std::vector<Index>& cuts, const Contract& contract,
                        const OperatorOracle& oracle, std::uint64_t seed, const Tensors<double>& actual,
                        const JudgePolicy& policy, SampledErrors begun, const SoftmaxOrder& softmax) {
  const TwinSubject of{op, call, inputs, cuts, contract, oracle};
  Tensors<double> between = between_points(of);
  // A long computation in fp32 between two points may have a huge worst case although its drawn error is
  // small; then it is drawn.
  const bool every = !oracle.points || hides_all(oracle, between);
  if (every) {
    for (auto& [name, x] : between) x.setZero();
  }
  const auto sampled = [&](int from, int count) {
    return SampledErrors{samples_of(of, every, seed, from, count, softmax), between};
  };
  auto known = std::min(policy.samples, static_cast<int>(begun.samples.size()));
  // The limits from an eighth of the samples are wide, but a fault of a hundredth of a layer is far beyond
  // them.
  if (known > 0 && known < policy.gross_samples) {
    SampledErrors some = sampled(known, policy.gross_samples - known);
    std::ranges::move(some.samples, std::back_inserter(begun.samples));
    Judgement gross = judge_samples(oracle, {begun.samples, between}, actual);
    if (gross.ratio > kGrossExcess && !has_samples(contract)) return gross;
    known = policy.gross_samples;
  }
  SampledErrors first = sampled(known, policy.samples - known);
  first.samples.insert(first.samples.begin(), std::make_move_iterator(begun.samples.begin()),
                       std::make_move_iterator(begun.samples.begin() + known));
  const bool ties = has_samples(contract);
  Judgement judgement = judge_samples(oracle, first, actual);
  if (!(judgement.ratio > 1.0) || (!ties && judgement.ratio > kGrossExcess)) return judgement;
  return judge_samples(oracle, sampled(policy.samples, policy.second_look * policy.samples), actual);
}

bool lies_within_few(const Operator& op, const Call& call, const Tensors<double>& inputs,
                     const std::vector<Index>& cuts, const Contract& contract, const OperatorOracle& oracle,
                     std::uint64_t seed, const Tensors<double>& actual, const JudgePolicy& policy,
                     SampledErrors* few) {
  SampledErrors errors = sample_errors(op, call, inputs, cuts, contract, oracle, seed, 0, policy.few_samples);
  const Judgement of_few = judge_samples(oracle, errors, actual, SampledLimit::largest);
  const bool within = of_few.ratio <= 1.0 && of_few.verdict == Verdict::pass;
  if (few != nullptr) *few = std::move(errors);
  return within;
}

}  // namespace samestate
