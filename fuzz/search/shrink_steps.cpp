#include "fuzz/search/shrink_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "harness/cases/keys.h"
#include "harness/cases/regimes.h"
#include "harness/cases/resolved.h"

namespace samestate {
namespace {

/// Counts what a person has to keep in mind besides the sizes; a step that removes one of these is a gain.
int settings_of(const Resolved& r) {
  int n = 0;
  for (const Key& key : keys()) n += key.setting && !key.print(r.c).empty();
  n += !r.regime->plain;
  if (r.form->decodes || r.form->packed) n += 3;
  return n + r.form->whole;
}

/// Returns a measure of complexity. Every accepted step reduces it, so that shrinking ends.
double cost_of(const Resolved& r) {
  const auto bits = [](std::int64_t n) { return std::log2(1.0 + static_cast<double>(n)); };
  const Case& c = r.c;
  // If nothing reads the chunk, the simplest is the one that the line leaves out.
  const bool reads_chunk = r.form->chunked || r.form->whole;
  const double chunk = reads_chunk ? bits(c.chunk) : c.chunk == Case{}.chunk ? 0.0 : 1.0;
  double cost = std::log2(1.0 + size_of_case(r)) + 0.5 * settings_of(r) + bits(c.T) + bits(c.B) +
                0.1 * (chunk + bits(c.prefill) + bits(c.step) + bits(std::ssize(c.lengths)));
  cost += 1e-3 * std::log2(1.0 + static_cast<double>(c.seed));
  for (const CaseSize& size : r.system->sizes) cost += 0.2 * bits(size_in(c, size.name));
  return cost;
}

/// The number of sequences of a packed batch that are tried one by one.
constexpr std::size_t kSingleLengths = 32;

/// The steps from one case, the boldest first.
class Steps {
 public:
  explicit Steps(const Case& from) : r_(from), cost_(cost_of(r_)) {
    forms();
    single_keys(false);
    tokens();
    sizes();
    chunks();
    residues();
    gates();
    single_keys(true);
  }
  [[nodiscard]] const std::vector<Case>& list() const { return list_; }

 private:
  template <class Change>
  void with(Change&& change) {
    Case c = c_;
    change(c);
    if (c == c_) return;
    const std::optional<Resolved> r = resolved(c);
    if (r && cost_of(*r) < cost_) list_.push_back(std::move(c));
  }

  /// Replaces packed or decoded calls by a single call of a kernel's form, and tries fewer or shorter packed
  /// sequences.
  void forms() {
    for (const CaseForm& form : system_.forms) {
      const bool same_kernel = !system_.native(c_.form) && system_.evaluates(r_, form.name);
      if (!same_kernel && !(system_.native(c_.form) && system_.native(form.name))) continue;
      with([&](Case& c) {
        c.form = form.name;
        if (c.chunk == 0) c.chunk = Case{}.chunk;
        c.prefill = 0, c.step = 1, c.cached = false;
        if (!c.lengths.empty()) c.T = *std::max_element(c.lengths.begin(), c.lengths.end());
        c.lengths.clear();
        c.lead = c.slack = 0;
        if (c.cuts == kCutHeads && system_.native(form.name)) c.cuts = Case{}.cuts;
      });
    }
    if (c_.lengths.empty()) return;
    const std::int64_t longest = *std::max_element(c_.lengths.begin(), c_.lengths.end());
    with([&](Case& c) { c.lengths = {longest}, c.T = longest; });
    parts();
    // If there are many sequences, only some are tried alone: each step from 1,000 of them would otherwise
    // give 4,000 cases.
    const std::size_t stride = 1 + c_.lengths.size() / kSingleLengths;
    for (std::size_t i = 0; i < c_.lengths.size(); i += stride) {
      with([&](Case& c) { set_lengths(c, i, -1); });
      with([&](Case& c) { set_lengths(c, i, c.lengths[i] / 2); });
      with([&](Case& c) { set_lengths(c, i, 1); });
      with([&](Case& c) { set_lengths(c, i, std::max<std::int64_t>(c.lengths[i] - 1, 0)); });
    }
  }
  /// For many sequences: keeps a half, a quarter or an eighth of them, then removes such a part, then halves
  /// all lengths.
  void parts() {
    const std::size_t count = c_.lengths.size();
    if (count < 4) return;
    const auto total = [](Case& c) { c.T = std::reduce(c.lengths.begin(), c.lengths.end()); };
    for (const bool alone : {true, false}) {
      for (const std::size_t pieces : {std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
        for (std::size_t i = 0; i < pieces && (alone || pieces > 2); ++i) {
          with([&](Case& c) {
            const auto first = c.lengths.begin() + static_cast<std::ptrdiff_t>(i * count / pieces);
            const auto last = c.lengths.begin() + static_cast<std::ptrdiff_t>((i + 1) * count / pieces);
            if (alone) {
              c.lengths = std::vector<std::int64_t>(first, last);
            } else {
              c.lengths.erase(first, last);
            }
            total(c);
          });
        }
      }
    }
    with([&](Case& c) {
      for (std::int64_t& length : c.lengths) length /= 2;
      total(c);
    });
  }
  /// Sets length i of a packed batch; -1 leaves the sequence out.
  static void set_lengths(Case& c, std::size_t i, std::int64_t length) {
    if (length >= 0) {
      c.lengths[i] = length;
    } else if (c.lengths.size() > 1) {
      c.lengths.erase(c.lengths.begin() + static_cast<std::ptrdiff_t>(i));
    }
    c.T = std::reduce(c.lengths.begin(), c.lengths.end());
  }

  /// Changes keys that depend on no other key as their rows propose; the seed comes last.
  void single_keys(bool seed) {
    for (const Key& key : keys()) {
      if ((key.name == "seed") != seed) continue;
      for (const Case& smaller : key.smaller(c_)) with([&](Case& c) { c = smaller; });
    }
  }

  /// Tries chunk edges first: 0, 1, C - 1, C, C + 1, 2C, 2C + 1; then halves; then one token less.
  void tokens() {
    if (!c_.lengths.empty()) return;
    const auto to = [&](std::int64_t T) {
      if (T < 0 || T >= c_.T) return;
      with([&](Case& c) { c.T = T, c.prefill = std::min(c.prefill, T); });
      // Tokens are taken from the prefill, so that as many as before are decoded.
      if (c_.prefill > 0) {
        with([&](Case& c) { c.prefill = std::max<std::int64_t>(c.prefill - (c.T - T), 0), c.T = T; });
      }
    };
    const std::int64_t C = c_.chunk;
    for (const std::int64_t T :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, C - 1, C, C + 1, 2 * C, 2 * C + 1})
      to(T);
    for (const std::int64_t part : {2, 4, 8}) to(c_.T - (c_.T + part - 1) / part);
    to(c_.T - 1);
    for (const std::int64_t prefill : {std::int64_t{0}, std::int64_t{1}, c_.prefill / 2, c_.prefill - 1}) {
      if (prefill >= 0 && prefill < c_.prefill) with([&](Case& c) { c.prefill = prefill; });
    }
  }

  /// Tries all sizes at once, then each alone. If a size is a multiple of another, it keeps its factor if
  /// that makes it smaller.
  void sizes() {
    for (const std::int64_t most : {1, 2, 3, 4, 8}) {
      with([&](Case& c) {
        for (const CaseSize& size : system_.sizes) resize(c, size, std::min(size_in(c, size.name), most));
      });
    }
    for (const CaseSize& size : system_.sizes) {
      const std::int64_t now = size_in(c_, size.name);
      const std::int64_t unit = size.multiple_of.empty() ? 1 : size_in(c_, size.multiple_of);
      for (const std::int64_t value : {unit, 2 * unit, 3 * unit, size.least, size.least + 1, 4 * unit,
                                       8 * unit, now / 2, now - now / 4, now - unit}) {
        if (value >= size.least && value < now) with([&](Case& c) { resize(c, size, value); });
      }
    }
  }
  /// Sizes that are multiples of `size` keep their factor.
  void resize(Case& c, const CaseSize& size, std::int64_t value) const {
    const std::int64_t before = size_in(c, size.name);
    const std::int64_t after = std::max<std::int64_t>(value, size.least);
    for (const CaseSize& other : system_.sizes) {
      if (other.multiple_of == size.name) size_in(c, other.name) = size_in(c, other.name) / before * after;
    }
    size_in(c, size.name) = after;
  }

  /// Tries smaller chunks, with as many full chunks as before and a tail of at most the same length.
  void chunks() {
    for (const std::int64_t C :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{8}, c_.chunk / 2, c_.chunk - 1}) {
      if (C < 1 || C >= c_.chunk) continue;
      with([&](Case& c) { c.chunk = C; });
      if (!c_.lengths.empty()) continue;
      with([&](Case& c) {
        const std::int64_t tail = c.T % c.chunk;
        c.T = c.T / c.chunk * C + std::min(tail, C - 1);
        c.chunk = C;
        c.prefill = std::min(c.prefill, c.T);
      });
    }
  }

  /// Tries the residues of a size modulo powers of two, alone and with one whole unit before them, because
  /// faults in tails depend on these.
  void residues() {
    const auto each = [&](std::int64_t now, std::int64_t least, auto&& put) {
      for (std::int64_t unit = 2; unit < now; unit *= 2) {
        for (const std::int64_t value : {now % unit, now % unit + unit}) {
          if (value >= least && value < now) with([&](Case& c) { put(c, value); });
        }
      }
    };
    each(c_.B, 1, [](Case& c, std::int64_t value) { c.B = value; });
    if (c_.lengths.empty() && c_.prefill == 0)
      each(c_.T, 1, [](Case& c, std::int64_t value) { c.T = value; });
    for (const CaseSize& size : system_.sizes) {
      each(size_in(c_, size.name), size.least, [&](Case& c, std::int64_t value) { resize(c, size, value); });
    }
  }

  /// Tries simpler data: no decay, and a full write.
  void gates() {
    if (r_.regime->plain) return;
    for (const Regime* regime : system_.regimes) {
      if (regime->plain) with([&](Case& c) { c.regime = regime->name; });
    }
  }

  const Resolved r_;
  const double cost_;
  const Case& c_ = r_.c;
  const System& system_ = *r_.system;
  std::vector<Case> list_;
};

}  // namespace

std::vector<Case> smaller_cases(const Case& from) { return Steps(from).list(); }

}  // namespace samestate
