#include "harness/explain/explain_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace samestate {
namespace {

constexpr Index kValues = 6;  // values shown side by side

/// Returns up to kValues columns around `worst`.
std::pair<Index, Index> window(Index worst, Index columns) {
  const Index begin = std::clamp<Index>(worst - kValues / 2, 0, std::max<Index>(columns - kValues, 0));
  return {begin, std::min(begin + kValues, columns)};
}

}  // namespace

Index worst_column(const Matrix<double>& exact, const Matrix<double>& actual, Index row) {
  Index worst = 0;
  double largest = -1.0;
  for (Index j = 0; j < exact.cols(); ++j) {
    const double e = std::abs(exact(row, j) - actual(row, j));
    const double error = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
    if (error > largest) largest = error, worst = j;
  }
  return worst;
}

void show_row(Explanation& out, const std::string& place, const LastAxis& axis, const Matrix<double>& exact,
              const Matrix<double>& actual, Index row) {
  const auto [begin, end] = window(worst_column(exact, actual, row), exact.cols());
  for (Index j = begin; j < end; ++j) {
    out.values.push_back({fmt::format("{}, {}", place, axis.text(j)), exact(row, j), actual(row, j)});
  }
}

const HeadDifference* show_differences(Explanation& out, const Resolved& r,
                                       const std::vector<HeadDifference>& heads) {
  const HeadDifference* worst = nullptr;
  std::size_t wrong = 0;
  for (const HeadDifference& d : heads) {
    if (d.tokens.empty() && !d.state_wrong) continue;
    if (++wrong <= 4) out.differs.push_back(where_text(r, d));
    if (worst == nullptr || d.worst_ratio > worst->worst_ratio) worst = &d;
  }
  if (worst == nullptr) return nullptr;
  if (wrong > 4) out.differs.push_back(fmt::format("and {} more of {} heads", wrong - 4, heads.size()));
  const std::string at = fmt::format("sequence {}, head {}", worst->sequence, worst->head);
  if (worst->worst_token >= 0) {
    show_row(out, fmt::format("o: {}, token {}", at, worst->worst_token), {.word = "channel"}, worst->exact.o,
             worst->o, worst->worst_token);
  }
  if (worst->worst_token < 0 || worst->state_wrong) {
    Index row = 0;
    double largest = -1.0;
    for (Index i = 0; i < worst->state.rows(); ++i) {
      const double e = (worst->state.row(i) - worst->exact.state.row(i)).norm();
      const double error = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
      if (error > largest) largest = error, row = i;
    }
    if (worst->state.size() > 0)
      show_row(out, fmt::format("final_state: {}, row {}", at, row), {}, worst->exact.state, worst->state,
               row);
  }
  return worst;
}

}  // namespace samestate
