#include "harness/run/piece_lengths.h"

#include <algorithm>
#include <utility>

namespace samestate {

std::vector<Index> piece_lengths(Index tokens, Index shortest, const TakesTokens& takes) {
  std::vector<Index> cut(static_cast<std::size_t>(tokens / shortest), shortest);
  if (tokens % shortest > 0) cut.push_back(tokens % shortest);
  if (!takes || cut.empty() || (takes(cut.front()) && takes(cut.back()))) return cut;
  std::vector<Index> taken;
  for (Index n = shortest; n <= tokens; ++n) {
    if (takes(n)) taken.push_back(n);
  }
  // For each token, the shortest piece that begins there and is followed by pieces up to the end; 0 if there
  // is none.
  std::vector<Index> next(static_cast<std::size_t>(tokens) + 1, 0);
  const auto at = [&](Index t) -> Index& { return next[static_cast<std::size_t>(t)]; };
  for (Index t = tokens - 1; t >= 0; --t) {
    const auto goes_on = [&](Index n) { return t + n == tokens || (t + n < tokens && at(t + n) > 0); };
    if (const auto n = std::ranges::find_if(taken, goes_on); n != taken.end()) at(t) = *n;
  }
  if (at(0) == 0) return cut;
  cut.clear();
  for (Index t = 0; t < tokens; t += cut.back()) cut.push_back(at(t));
  return cut;
}

TakesTokens takes_pieces(const KernelChoice& kernels, const Resolved& r) {
  const bool recurrent = r.unchunked() || r.form->decodes;
  const KernelRow* row = recurrent ? kernels.unchunked : kernels.chunked;
  if (row == nullptr || row->limits.none()) return {};
  Case piece = r.c;
  piece.B = 1;
  piece.lengths.clear();
  piece.form = row->form;
  if (recurrent) piece.chunk = 0, piece.ranks = 1;
  piece.state = "random";
  if (!r.divides_heads()) piece.ranks = std::min<std::int64_t>(piece.ranks, 2);
  return [row, piece = std::move(piece)](Index tokens) {
    Case call = piece;
    call.T = tokens;
    return row->limits.hold(call);
  };
}

}  // namespace samestate
