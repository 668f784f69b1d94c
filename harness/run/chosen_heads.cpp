#include "harness/run/chosen_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "harness/cases/counter.h"

namespace samestate {

std::vector<Index> block_edges(Index n) {
  constexpr Index kBlock = 64, kLastBlock = 1024;
  std::set<Index> edges{0, 1, n - 1};
  for (Index power = 2; power - 1 < n; power *= 2) edges.insert({power - 1, power});
  for (Index at = kBlock; at <= kLastBlock && at - 1 < n; at += kBlock) edges.insert({at - 1, at});
  std::erase_if(edges, [&](Index at) { return at < 0 || at >= n; });
  return {edges.begin(), edges.end()};
}

ChosenHeads::ChosenHeads(Index sequences, Index heads, std::uint64_t seed,
                         const std::function<bool(Index sequence)>& has_tokens, const JudgePolicy& policy,
                         Index most)
    : heads_(heads), taken_(static_cast<std::size_t>(sequences * heads)) {
  if (sequences * heads <= most) {
    taken_.assign(taken_.size(), true);
    count_ = std::ssize(taken_);
    return;
  }
  std::vector<Index> of_sequences = block_edges(sequences);
  const std::vector<Index> of_heads = block_edges(heads);
  // An empty sequence has nothing to show but its state.
  Index first = 0, last = sequences - 1;
  while (first < last && !has_tokens(first)) ++first;
  while (last > first && !has_tokens(last)) --last;
  of_sequences.insert(of_sequences.end(), {first, last});
  if (most >= policy.held_heads) {
    for (const Index n : {Index{0}, first, last, sequences - 1}) {
      add(n, 0);
      add(n, heads - 1);
    }
    // Adds each edge of one axis once, paired with the edges of the other in turn.
    for (std::size_t i = 0; i < of_sequences.size(); ++i) add(of_sequences[i], of_heads[i % of_heads.size()]);
    for (std::size_t i = 0; i < of_heads.size(); ++i) add(of_sequences[i % of_sequences.size()], of_heads[i]);
  } else {
    if (most > 0) add(first, 0);
    if (most > 1) add(last, heads - 1);
  }
  const Counter draws(seed, "chosen heads");
  for (std::int64_t draw = 0; draw < 64 * policy.held_heads && count_ < most; ++draw) {
    const Index n = draws.below({draw, 0, 0, 0}, sequences);
    if (has_tokens(n)) add(n, draws.below({draw, 1, 0, 0}, heads));
  }
}

void ChosenHeads::add(Index sequence, Index head) {
  auto taken = taken_[static_cast<std::size_t>(sequence * heads_ + head)];
  count_ += taken ? 0 : 1;
  taken = true;
}

std::string ChosenHeads::text() const {
  std::string out;
  Index sequence = -1;  // the sequence whose heads are being listed
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i]) continue;
    const Index n = static_cast<Index>(i) / heads_, h = static_cast<Index>(i) % heads_;
    if (n == sequence) {
      out += fmt::format(",{}", h);
    } else {
      out += fmt::format("{}{}", out.empty() ? "" : " ", n);
      if (heads_ > 1) out += fmt::format(":{}", h);
    }
    sequence = n;
  }
  return out;
}

void ChosenHeads::note(Judgement& judgement, Index plain) const {
  if (all()) return;
  judgement.held = count_;
  judgement.held_of = std::ssize(taken_);
  judgement.held_which = text();
  if (plain < others())
    judgement.held_which += fmt::format("; float64 looked at {} of the {} others", plain, others());
}

void Distance::add(const Matrix<double>& exact, const Matrix<double>& actual) {
  const auto keep = [](double& most, double error, double size) {
    const double share = error == 0.0 ? 0.0 : error / size;
    most = std::isnan(share) ? std::numeric_limits<double>::infinity() : std::max(most, share);
  };
  if (exact.size() == 0) return;
  double largest = 0.0;
  double squares = 0.0;
  for (Index i = 0; i < exact.rows(); ++i) {
    const double of_row = (actual.row(i) - exact.row(i)).squaredNorm();
    squares += of_row;
    if (!(of_row <= largest)) largest = of_row;
    if (std::isnan(largest)) break;
  }
  const double size = exact.norm();
  keep(all, std::sqrt(std::isnan(largest) ? largest : squares), size);
  keep(row, std::sqrt(largest), size / std::sqrt(static_cast<double>(exact.rows())));
}

void Farthest::add(Index head, const Distance& distance) {
  const std::array measures{distance.all, distance.row};
  for (std::size_t m = 0; m < measures.size(); ++m) {
    Place now{measures[m], head};
    for (Place& place : places_[m]) {
      if (now.distance > place.distance) std::swap(now, place);
    }
  }
}

std::vector<Index> Farthest::heads() const {
  std::vector<Index> out;
  for (std::size_t rank = 0; rank < places_.front().size(); ++rank) {
    for (const auto& of : places_) {
      if (of[rank].head >= 0) out.push_back(of[rank].head);
    }
  }
  return out;
}

}  // namespace samestate
