#include "oracles/bounds/repeated_roundings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

using Mat = Matrix<double>;
using Vec = Vector<double>;

constexpr Index kAlone = -1;

/// [rows] the row that each row is equal to; kAlone if it is zero, which is exact in every format, or equal
/// to no other.
std::vector<Index> alike(const Mat& x) {
  std::vector<Index> first(static_cast<std::size_t>(x.rows()), kAlone);
  std::unordered_map<std::string_view, Index> seen;
  const std::size_t bytes = sizeof(double) * static_cast<std::size_t>(x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    if (x.row(t).isZero(0)) continue;
    const auto [at, fresh] =
        seen.try_emplace({reinterpret_cast<const char*>(x.data() + t * x.cols()), bytes}, t);
    if (fresh) continue;
    first[static_cast<std::size_t>(at->second)] = first[static_cast<std::size_t>(t)] = at->second;
  }
  return first;
}

bool any(const std::vector<Index>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](Index row) { return row != kAlone; });
}

bool rounds(Format format) { return unit_roundoff(format) > unit_roundoff(Format::fp32); }

/// The deviation of each element's rounding; zero for values that the format represents.
template <class Row>
Vec deviations(const Eigen::MatrixBase<Row>& x, Format format) {
  return x.unaryExpr([format](double v) {
            return round_to(v, format) == v ? 0.0
                                            : unit_roundoff(format) * std::abs(v) + subnormal_error(format);
          }).transpose() /
         std::sqrt(3.0);
}

/// An operand: the row of V or K, its factor, and its format.
using Operand = std::tuple<Index, double, Format>;

/// Tokens whose weights add up.
struct Group {
  Index tokens = 0;
  Index last = -1;  ///< the last token that was counted: two points of one token count once
  double variance = 0.0;
  Vec deviation;       ///< [dk] for an operand that is a key
  Vec kept;            ///< their part of the state: [dk] weights, or [dv] the sum of V'
  double apart = 0.0;  ///< the sum of the squares of the terms in `kept`
};

/// The excess of m shared errors over m independent ones.
double excess(const Vec& sum, double apart) { return std::max(0.0, sum.squaredNorm() - apart); }

class Walk {
 public:
  Walk(const Sequence<double>& x, const Contract& contract, bool delta)
      : x_(x),
        chunked_(contract),
        recurrent_(recurrent_contract(contract)),
        delta_(delta),
        like_v_(alike(x.v)),
        like_k_(alike(x.k)),
        S_(x.initial_state) {}

  [[nodiscard]] RepeatedRoundings run(const Path& path) {
    RepeatedRoundings out{Vec::Zero(x_.tokens()), Vec::Zero(x_.key_width())};
    if (!any(like_v_) && !any(like_k_)) return out;
    rows_ = Vec::Zero(x_.tokens());
    // Two passes, because the modes already count an operand that has only one token.
    for (const bool counting : {true, false}) {
      counting_ = counting;
      Index at = 0;
      for (const Segment& segment : path) {
        c_ = segment.chunk > 0 ? &chunked_ : &recurrent_;
        const Index end = at + segment.tokens;
        const Index chunk = std::max<Index>(segment.chunk, 1);
        for (; at < end; at += std::min(chunk, end - at)) one(at, std::min(chunk, end - at));
      }
      if (counting && !leave_those_alone()) return out;
    }
    out.rows = std::fabs(x_.scale) * rows_.cwiseSqrt();
    for (const auto& [operand, group] : values_) out.state += group.variance * group.kept.cwiseAbs2();
    for (const auto* keys : {&keys_, &decayed_keys_}) {
      for (const auto& [operand, group] : *keys)
        out.state += excess(group.kept, group.apart) * group.deviation.cwiseAbs2();
    }
    out.state = out.state.cwiseSqrt().eval();
    return out;
  }

 private:
  /// Drops operands with one token; returns true if anything is left.
  [[nodiscard]] bool leave_those_alone() {
    for (auto* groups : {&values_, &keys_, &decayed_keys_})
      std::erase_if(*groups, [](const auto& entry) { return entry.second.tokens < 2; });
    return !values_.empty() || !keys_.empty() || !decayed_keys_.empty() ||
           (rounds(chunked_.P) && any(like_k_));
  }

  /// The group of an operand; null if it has none or is only counted.
  template <class Row>
  Group* group_of(std::map<Operand, Group>& groups, Index row, double factor, Format format, Index token,
                  const Eigen::MatrixBase<Row>& base, Index kept) {
    if (row == kAlone || factor == 0.0 || !rounds(format)) return nullptr;
    if (!counting_) {
      const auto at = groups.find({row, factor, format});
      return at == groups.end() ? nullptr : &at->second;
    }
    const auto [at, fresh] = groups.try_emplace({row, factor, format});
    Group& group = at->second;
    if (fresh) {
      group.deviation = deviations(factor * base, format);
      group.variance = group.deviation.squaredNorm();
      group.kept = Vec::Zero(kept);
    }
    group.tokens += group.last != token ? 1 : 0;
    group.last = token;
    return nullptr;
  }

  void one(Index begin, Index L) {
    load(begin, L);
    // The weights of each token's operands in the rows of this chunk and in the state after it.
    std::map<Group*, std::pair<Vec, Vec>> weights;
    for (Index j = 0; j < L; ++j) weigh(begin, j, weights);
    if (counting_) return;
    read_keys(begin);
    if (rounds(c_->P)) equal_scores(begin);
    for (auto& [operand, group] : values_) {
      Vec in_rows = R_ * group.kept;
      group.kept = propagated(group.kept);
      if (const auto at = weights.find(&group); at != weights.end()) {
        in_rows += at->second.first;
        group.kept += at->second.second;
      }
      rows_.segment(begin, L) += group.variance * in_rows.cwiseAbs2();
    }
  }

  void load(Index begin, Index tokens) {
    L_ = tokens;
    E_ = Mat::Zero(L_, L_);
    from_start_.resize(L_);
    double start = 0.0;
    for (Index i = 0; i < L_; ++i) {
      from_start_(i) = std::exp(start += x_.g(begin + i));
      // Summed between tokens, so that a reset of -inf only affects its own tokens.
      double between = 0.0;
      E_(i, i) = 1.0;
      for (Index j = i; j-- > 0;) E_(i, j) = std::exp(between += x_.g(begin + j + 1));
    }
    K_ = x_.k.middleRows(begin, L_);
    V_ = x_.beta.segment(begin, L_).asDiagonal() * x_.v.middleRows(begin, L_);
    if (counting_) return;
    const Mat Q = x_.q.middleRows(begin, L_);
    P_ = (Q * K_.transpose()).cwiseProduct(E_);
    R_ = from_start_.asDiagonal() * Q;
    Kd_ = E_.row(L_ - 1).transpose().asDiagonal() * K_;
    if (!delta_) return;
    const Vec beta = x_.beta.segment(begin, L_);
    Mat A = (beta.asDiagonal() * (K_ * K_.transpose())).cwiseProduct(E_);
    A.diagonal().setZero();
    const Mat identity = Mat::Identity(L_, L_);
    T_ = (identity + A).triangularView<Eigen::UnitLower>().solve(identity);
    W_ = T_ * ((beta.array() * from_start_.array()).matrix().asDiagonal() * K_);
    V_ = T_ * V_ - W_ * S_;
    S_ = (from_start_(L_ - 1) * S_ + Kd_.transpose() * V_).eval();
    PT_ = P_ * T_;
    KdT_ = Kd_.transpose() * T_;
    R_ -= P_ * W_;
  }

  [[nodiscard]] Vec propagated(const Vec& w) const {
    const double e = from_start_(L_ - 1);
    return delta_ ? Vec(e * w - Kd_.transpose() * (W_ * w)) : Vec(e * w);
  }

  void weigh(Index begin, Index j, std::map<Group*, std::pair<Vec, Vec>>& weights) {
    const Index t = begin + j;
    const Index row = like_v_[static_cast<std::size_t>(t)];
    const auto of = [&](double factor, Format format) -> std::pair<Vec, Vec>* {
      Group* group = group_of(values_, row, factor, format, t, x_.v.row(t), x_.key_width());
      if (group == nullptr) return nullptr;
      return &weights.try_emplace(group, Vec::Zero(L_), Vec::Zero(x_.key_width())).first->second;
    };
    if (delta_) {
      if (c_->residual != Format::none) return;
      const double within = c_->beta_in_T ? x_.beta(t) : 1.0;
      if (auto* at = of(c_->beta_in_T ? 1.0 : x_.beta(t), c_->beta_v)) {
        at->first += within * PT_.col(j);
        at->second += within * KdT_.col(j);
      }
      return;
    }
    const bool decays_keys = c_->k_decayed != Format::none;
    if (auto* at = of(x_.beta(t), c_->v_new)) {
      at->first += P_.col(j);
      if (decays_keys) at->second += Kd_.row(j);
    }
    if (decays_keys) {
      group_of(decayed_keys_, like_k_[static_cast<std::size_t>(t)], E_(L_ - 1, j), c_->k_decayed, t,
               x_.k.row(t), x_.value_width());
    } else if (auto* at = of(E_(L_ - 1, j) * x_.beta(t), c_->v_decayed)) {
      at->second += K_.row(j);
    }
    group_of(keys_, like_k_[static_cast<std::size_t>(t)], 1.0, c_->qk, t, x_.k.row(t), x_.value_width());
  }

  /// The effect of rounded keys on the rows of the chunk, and their part of the state after it.
  void read_keys(Index begin) {
    for (auto& [operand, group] : decayed_keys_) {
      for (Index i = 0; i < L_; ++i) rows_(begin + i) += read(begin + i, group) * std::pow(from_start_(i), 2);
      hand_on(group, from_start_(L_ - 1));
    }
    for (Index j = 0; !delta_ && j < L_; ++j) {
      const Index t = begin + j;
      const Index row = like_k_[static_cast<std::size_t>(t)];
      for (auto& [operand, group] : keys_) hand_on(group, std::exp(x_.g(t)));
      add(keys_.find({row, 1.0, c_->qk}), keys_, j);
      for (auto& [operand, group] : keys_) rows_(t) += read(t, group);
      if (c_->k_decayed != Format::none)
        add(decayed_keys_.find({row, E_(L_ - 1, j), c_->k_decayed}), decayed_keys_, j);
    }
  }
  void add(std::map<Operand, Group>::iterator at, const std::map<Operand, Group>& groups, Index j) const {
    if (at == groups.end()) return;
    at->second.kept += V_.row(j);
    at->second.apart += V_.row(j).squaredNorm();
  }
  static void hand_on(Group& group, double decay) {
    group.kept *= decay;
    group.apart *= decay * decay;
  }
  [[nodiscard]] double read(Index t, const Group& group) const {
    return x_.q.row(t).transpose().cwiseProduct(group.deviation).squaredNorm() *
           excess(group.kept, group.apart);
  }

  /// P_ij for equal keys that no decay distinguishes.
  void equal_scores(Index begin) {
    struct Scores {
      Index column;
      Vec sum;
      double apart = 0.0;
    };
    std::map<std::pair<Index, double>, Scores> groups;
    const double u = unit_roundoff(c_->P);
    for (Index i = 0; i < L_; ++i) {
      if (const Index row = like_k_[static_cast<std::size_t>(begin + i)]; row != kAlone) {
        const auto at = groups.try_emplace({row, from_start_(i)}, Scores{i, Vec::Zero(V_.cols())}).first;
        at->second.sum += V_.row(i);
        at->second.apart += V_.row(i).squaredNorm();
      }
      for (const auto& [key, scores] : groups) {
        const double rounding = u * std::abs(P_(i, scores.column)) + subnormal_error(c_->P);
        rows_(begin + i) += rounding * rounding / 3.0 * excess(scores.sum, scores.apart);
      }
    }
  }

  const Sequence<double>& x_;
  Contract chunked_, recurrent_;
  const Contract* c_ = nullptr;  ///< the contract for the form of the segment
  bool delta_;
  std::vector<Index> like_v_, like_k_;
  bool counting_ = true;
  std::map<Operand, Group> values_, keys_, decayed_keys_;
  Vec rows_;  ///< [T] variance of o, before the scale
  Mat S_;     ///< the state before the chunk; only for the delta rule
  Index L_ = 0;
  Vec from_start_;
  Mat E_, K_, V_, P_, R_, Kd_, T_, W_, PT_, KdT_;
};

}  // namespace

RepeatedRoundings repeated_roundings(const Sequence<double>& x, const Path& path, const Contract& contract,
                                     bool delta) {
  const bool of_values =
      delta ? rounds(contract.beta_v) : rounds(contract.v_new) || rounds(contract.v_decayed);
  const bool of_keys = !delta && (rounds(contract.qk) || rounds(contract.k_decayed));
  // Most contracts in plans round none of these, and searching for equal rows takes as long as a small head's
  // bound.
  if (!of_values && !of_keys && !rounds(contract.P)) return {Vec::Zero(x.tokens()), Vec::Zero(x.key_width())};
  return Walk(x, contract, delta).run(path);
}

}  // namespace samestate
