#include "fuzz/mutants/family/over_ranks.h"

namespace samestate::mutants {

void OverRanks::evaluate() {
  whole_ = head_;
  parts_ = parts();
  maps_.clear();
  for (const cpu::Part& part : parts_) {
    if (part.passes_on) maps_.push_back(map_of(part));
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    head_ = cpu::tokens_of(whole_, parts_[i].begin, parts_[i].end);
    reached_ = received(i);
    last_ = !parts_[i].passes_on;
    Chunked::evaluate();
    head_ = whole_;
  }
}

std::vector<std::int64_t> OverRanks::cuts() const { return cpu::checked_cuts(arguments_, sizes_); }

std::vector<cpu::Part> OverRanks::parts() const { return cpu::parts_of(arguments_, sizes_, cuts(), n_); }

OverRanks::Map OverRanks::map_of(const cpu::Part& part) { return map_of_tokens(part.begin, part.end); }

OverRanks::Map OverRanks::map_of_tokens(Index begin, Index end) {
  head_ = cpu::tokens_of(whole_, begin, end);
  head_.dv = whole_.dk + whole_.dv;
  mapping_ = true;
  Chunked::evaluate();
  mapping_ = false;
  head_ = whole_;
  return {made_.leftCols(whole_.dk), made_.rightCols(whole_.dv)};
}

Grid OverRanks::start_of_map() const {
  Grid start = Grid::Zero(whole_.dk, whole_.dk + whole_.dv);
  start.leftCols(whole_.dk).setIdentity();
  return start;
}

Grid OverRanks::composed(const Map& map, const Grid& S) const { return multiply(map.M, S) + map.N; }

Grid OverRanks::received(std::size_t i) {
  Grid S = handed_in();
  for (std::size_t before = 0; before < i; ++before) S = settled(composed(maps_[before], S));
  return S;
}

Grid OverRanks::initial_state() { return mapping_ ? start_of_map() : reached_; }

void OverRanks::store_state(const Grid& S) {
  if (mapping_) {
    made_ = S;
  } else if (last_) {
    Chunked::store_state(S);
  }
}

void OverRanks::store_row(Index t, const Grid& o) {
  if (!mapping_) Chunked::store_row(t, o);
}

Column OverRanks::value(Index t) const {
  if (!mapping_) return Chunked::value(t);
  Column row = Column::Zero(whole_.dk + whole_.dv);
  head_.v.load(t, 0, whole_.dv, row.data() + whole_.dk);
  return row;
}

}  // namespace samestate::mutants
