#include "fuzz/edges.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/draw.h"
#include "fuzz/factors.h"
#include "fuzz/wide_calls.h"
#include "harness/cases/keys.h"
#include "harness/systems/model_shapes.h"

namespace samestate {
namespace {

constexpr double kMostOfModel = 8.0;      // System::work of a case with the sizes of a public model
constexpr double kMostOfWidths = 2.0;     // beyond which it has fewer tokens, if those are many
constexpr double kDearOfSizes = 0.2;      // work of a size that only a tile of it makes special
constexpr double kMostBehindCache = 6.0;  // the same behind a cache of many tokens
constexpr double kMostBeyondTiles = 1.5;  // work of a case whose sizes are all beyond a tile

/// The edge cases of one kernel: what follows from the rows of its system and of the keys.
class Edges {
 public:
  Edges(const KernelTable& table, const KernelRow& kernel)
      : table_(table), kernel_(kernel), system_(*kernel.system), start_(start_of(kernel)) {}

  [[nodiscard]] std::vector<Case> take() && {
    put_all();
    return std::move(out_);
  }

 private:
  void put_all() {
    family(FamilyCall::Tried::divided_as_well);
    if (divides_heads(kernel_)) return put_heads();
    for (const std::string& contract : kernel_.contracts) {
      const Case c = under(contract);
      lengths(c);
      calls(c);
      for (const std::string_view part : system_.plan.every) put(c, part);
    }
    std::vector<std::string> both{kernel_.contracts.front()};
    if (contract_for_rounding() != both.front()) both.push_back(contract_for_rounding());
    for (const std::string& contract : both) {
      const Case c = under(contract);
      if (over_ranks(kernel_)) {
        if (contract == both.front()) settings(c);
        for (const std::string_view part : system_.plan.ranks) put(c, part);
      } else {
        sizes(c);
        tiled_sizes(c);
        groups(c);
        reciprocals(c);
        settings(c);
        chunks(c);
        for (const std::string_view part : system_.plan.shapes) put(c, part);
      }
      regimes_and_laws(c);
    }
    if (over_ranks(kernel_)) return;
    for (const std::string_view part : system_.plan.limits) put(start_, part);
    long_cache(start_);
    many_tokens(start_);
    beyond_tiles();
    full_chunks();
    for (Case& c : wide_calls(kernel_, start_)) put(std::move(c));
    regimes_beyond_tiles();
    family(FamilyCall::Tried::one_contract);
    for (const std::string& part : system_.plan.models) {
      for (const std::string& contract : both) affordable(under(contract), part);
    }
    for (const std::string& part : system_.plan.models) decoded(part);
    if (!system_.plan.models.empty()) twice(system_.plan.models.front());
  }

  void family(FamilyCall::Tried tried) {
    if (!system_.has_key("dk")) return;
    std::size_t turn = 0;
    for (const FamilyCall& call : family_calls()) {
      if (call.tried != tried) continue;
      Case c = with_part(kernel_, under(kernel_.contracts[turn++ % kernel_.contracts.size()]), call.part);
      if (divides_heads(kernel_) && !system_.native(c.form)) c.cuts = kCutHeads;
      put(std::move(c));
    }
  }

  void regimes_and_laws(const Case& c) {
    for (const Regime* regime : system_.regimes) {
      Case of = with_part(kernel_, c, system_.plan.regime);
      of.regime = regime->name;
      of.seed = 7;
      put(of);
    }
    for (const Law* law : system_.laws) {
      Case of = with_part(kernel_, c, system_.plan.law);
      of.law = law->name;
      put(of);
    }
  }

  /// What a rank does with a head is another kernel's: which heads it has, and whose rows it reads and writes, is left.
  void put_heads() {
    lengths(start_);
    settings(start_);
    calls(start_);
    for (const std::string_view part : system_.plan.heads) put(start_, part);
    regimes_and_laws(start_);
  }

  [[nodiscard]] bool chunked() const { return system_.form(kernel_.form)->chunked; }
  [[nodiscard]] std::string contract_for_rounding() const {
    const auto bf16 = std::find(kernel_.contracts.begin(), kernel_.contracts.end(), "bf16");
    return bf16 != kernel_.contracts.end() ? *bf16 : kernel_.contracts.back();
  }
  [[nodiscard]] Case under(const std::string& contract) const {
    Case c = start_;
    c.contract = contract;
    return c;
  }

  /// Only cases that are cases: a size at its least may not fit the others, nor a layout the kernel.
  void put(Case c) {
    if (c.layout != Case{}.layout && !kernel_.strided) return;
    if (!has_kernels(kernel_, c)) return;
    if (!table_.is_standard(kernel_, c)) c.kernel = kernel_.name;
    if (seen_.insert(format_case(c)).second) out_.push_back(std::move(c));
  }
  void put(const Case& c, std::string_view part) { put(with_part(kernel_, c, part)); }

  /// With as many tokens as a model's widths leave the time for.
  void affordable(const Case& base, std::string_view part) {
    Case c = with_part(kernel_, base, part);
    // The family's have a token behind a chunk of 64, which fewer would take away.
    const double most = system_.has_key("dk") ? kMostOfModel : kMostOfWidths;
    while (c.T > 1 && possible(c) && work_of(kernel_, c) > most) c.T = (c.T + 1) / 2;
    if (possible(c) && work_of(kernel_, c) <= kMostOfModel) put(c);
  }

  /// Repeated calls of many tokens and a model's widths: what a kernel keeps by shape it may keep of a large one alone.
  void twice(const std::string& part) {
    Case c = with_part(kernel_, start_, part + " repeat=1");
    c.T = std::max<Index>(c.T, 70);
    if (possible(c) && work_of(kernel_, c) <= kMostOfWidths) put(c);
  }

  void lengths(const Case& base) {
    const Index C = base.chunk;
    // Those that show most first: what only a process's first call does wrong is in them.
    const std::vector<Index> all = chunked() ? std::vector<Index>{2 * C + 3, C + 1, C, C - 1, 2, 1, 0}
                                             : std::vector<Index>{33, 9, 8, 7, 2, 1, 0};
    for (const Index T : all) {
      Case c = base;
      c.T = T;
      c.seed = static_cast<std::uint64_t>(T);
      put(c);
    }
  }

  /// The forms that are calls of the kernel's: one, several and all tokens in one call of several.
  void calls(const Case& base) {
    for (const CaseForm& form : system_.forms) {
      Case c = base;
      c.form = form.name;
      if (form.whole && chunked() && !over_ranks(kernel_)) put(c);
      if (!form.decodes) continue;
      if (form.chunked && !chunked()) c.chunk = 0;
      if (divides_heads(kernel_)) c.cuts = kCutHeads;
      for (const Index prefill : {Index{0}, Index{1}, Index{2}, Index{13}, base.T}) {
        c.prefill = std::min(prefill, base.T);
        put(c);
      }
    }
  }

  /// Each size at its least, odd, and beyond what the others' cases have.
  void sizes(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      for (const Index value : {size.least, size.start + 1, 2 * size.start}) {
        Case c = base;
        size_in(c, size.name) = value;
        for (const CaseSize& other : system_.sizes) {
          if (other.multiple_of == size.name) size_in(c, other.name) = 2 * value;
        }
        put(c);
      }
      // A size that kernels unroll has code of its own for each value.
      constexpr Index kUnrolled = 16;
      for (Index value = size.least; size.multiple_of.empty() && size.most <= kUnrolled && value <= size.most;
           ++value) {
        Case c = base;
        size_in(c, size.name) = value;
        put(c);
      }
    }
  }

  /// Widths of models between the powers of two, with tokens enough to show them: of one key, or token, a scale does not.
  void tiled_sizes(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      for (const Index value : {48, 96, 192}) {
        Case c = base;
        size_in(c, size.name) = value;
        for (const CaseSize& other : system_.sizes) {
          if (other.multiple_of == size.name) size_in(c, other.name) = value;
        }
        if (possible(c) && work_of(kernel_, c) <= kDearOfSizes) put(c);
      }
    }
  }

  /// A few groups of two or three, of odd counts and of even ones that are no power of two, by every map of heads.
  void groups(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      if (size.multiple_of.empty()) continue;
      for (const Index of : {3, 5, 6, 7}) {
        for (const Index ratio : {2, 3}) {
          Case c = base;
          size_in(c, size.multiple_of) = of;
          size_in(c, size.name) = ratio * of;
          put(c);
          if (!system_.has_key("heads")) continue;
          c.heads = HeadMap::tiled;
          put(c);
        }
      }
    }
  }

  /// Of 41 a quotient by its fp32 reciprocal is first too small by one.
  void reciprocals(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      if (size.multiple_of.empty()) continue;
      for (const auto& [of, ratio] : {std::pair<Index, Index>{2, 41}, {41, 2}}) {
        Case c = base;
        size_in(c, size.multiple_of) = of;
        size_in(c, size.name) = ratio * of;
        if (!possible(c) || work_of(kernel_, c) > kMostBeyondTiles) continue;
        put(c);
        if (!system_.has_key("heads")) continue;
        c.heads = HeadMap::tiled;
        put(c);
      }
    }
  }

  /// Every size beyond a tile at once, as in models: what only the second tile of two widths does, or of one behind many
  /// tokens, is in no pair. Those that start largest (widths, not counts of heads) come first, as far as the work allows.
  void beyond_tiles() {
    struct Tile {
      Index size, tokens, chunk;
    };
    constexpr Index kTwice = 100;  // tokens of calls that repeat, too
    for (const Tile& tile :
         {Tile{72, 78, 64}, Tile{72, 300, 256}, Tile{24, 300, 256}, Tile{40, 600, 64}, Tile{136, 142, 64},
          Tile{136, 20, 64}, Tile{264, 3, 64}, Tile{520, 3, 64}, Tile{136, 4099, 64}}) {
      Case c = start_;
      c.T = tile.tokens;
      if (chunked()) c.chunk = tile.chunk;
      if (!fill(c, tile.size)) continue;
      put(c);
      if (tile.tokens < kTwice) {
        Case again = c;
        again.repeat = true;
        put(again);
      }
      for (const CaseSize& size : system_.sizes) {
        if (size.least != 0 || size.most != 1) continue;
        Case other = c;
        size_in(other, size.name) ^= 1;
        put(other);
      }
    }
    // Of a second sequence the second tile of everything: a grid that counts sequences, tiles of tokens and tiles of channels in
    // one number, or by another order.
    const auto two = [this](std::string law, const std::string& contract) {
      Case c = under(contract);
      c.law = std::move(law);
      c.T = 78;
      if (chunked()) c.chunk = 64;
      if (!fill(c, 72, 2 * kMostBeyondTiles)) return;
      c.B = 2;
      put(c);
    };
    two("", start_.contract);
    if (const std::string rounds = contract_for_rounding(); rounds != start_.contract) two("", rounds);
    if (system_.has(Property::streams)) two("split", start_.contract);
    for (const CaseForm& form : system_.forms) {
      if (!form.decodes) continue;
      Case c = start_;
      c.form = form.name;
      if (form.chunked && !chunked()) c.chunk = 0;
      c.T = 521, c.prefill = 519;
      if (fill(c, 72, kMostBehindCache)) put(c);
    }
  }

  /// Chunks of more than one tile with a token in every place: what goes wrong between two tiles of one chunk, far apart, is in
  /// no chunk that ends early. Where decays may be slow, the last token still sees the first.
  void full_chunks() {
    constexpr double kMost = 1.2;
    if (!chunked()) return;
    static constexpr std::array<Index, 10> kChunks{31, 48, 80, 96, 112, 128, 160, 192, 224, 256};
    for (const Index chunk : kChunks) {
      Case c = few_of_each_size(start_);
      c.chunk = chunk;
      for (const Index tokens : {chunk, 2 * chunk + 1}) {
        c.T = tokens;
        // The family's; of systems with rates those of which some are slow, and of trained weights.
        for (const std::string& regime :
             {start_.regime, std::string("slow"), std::string("wide_rates"), std::string("trained")}) {
          if (std::ranges::find(system_.regimes, regime, &Regime::name) == system_.regimes.end()) continue;
          c.regime = regime;
          if (possible(c) && within_limits(kernel_, c) && work_of(kernel_, c) <= kMost) put(c);
        }
      }
    }
  }

  /// Every regime in whole chunks, several of them and widths of models: what overflows, cancels or is clipped only among so
  /// many tokens is in no pair of a regime and a size.
  void regimes_beyond_tiles() {
    constexpr double kMost = 0.8, kMostOfWide = 0.2;
    for (const Regime* regime : system_.regimes) {
      Case c = start_;
      c.regime = regime->name;
      if (system_.has_key("dk")) {
        for (const FamilyCall& call : family_calls()) {
          if (call.tried != FamilyCall::Tried::every_regime) continue;
          Case of = with_part(kernel_, c, call.part);
          if (regime->exact) of.l2norm = false;  // which leaves the integers
          put(of);
        }
        continue;
      }
      c.T = 70;
      if (chunked()) c.chunk = 64;
      if (Case tiled = c; fill(tiled, 72, kMost)) put(tiled);
      if (chunked()) {  // one chunk that is the whole call
        Case whole = few_of_each_size(c);
        whole.T = whole.chunk = 128;
        if (possible(whole) && work_of(kernel_, whole) <= kMost) put(whole);
      }
      c.T = 4;  // a token of each kind
      if (fill(c, 4104, kMostOfWide)) put(c);
    }
  }

  /// Sizes of `c` to `tile`, or what of it the work leaves; false where even two of each are too much.
  [[nodiscard]] bool fill(Case& c, Index tile, double most = kMostBeyondTiles) const {
    const auto fits = [&](const Case& of) {
      return possible(of) && within_limits(kernel_, of) && work_of(kernel_, of) <= most;
    };
    c = few_of_each_size(std::move(c), 2);
    if (!fits(c)) return false;
    std::vector<const CaseSize*> largest_first;
    for (const CaseSize& size : system_.sizes) {
      if (size.most > 1) largest_first.push_back(&size);
    }
    std::stable_sort(largest_first.begin(), largest_first.end(), [](const CaseSize* a, const CaseSize* b) {
      return std::pair(a->start, a->most) > std::pair(b->start, b->most);
    });
    for (const CaseSize* size : largest_first) {
      constexpr Index kFew = 3;  // of what is counted
      for (Index value = tile; value >= kFew && value > size_in(c, size->name); value /= 2) {
        Case of = c;
        const Index divisor = size->multiple_of.empty() ? 1 : size_in(of, size->multiple_of);
        size_in(of, size->name) = std::max<Index>(std::min(value, size->most) / divisor, 1) * divisor;
        if (!fits(of)) continue;
        c = std::move(of);
        break;
      }
    }
    return true;
  }

  /// A cache of more tokens than a block of threads has, in a batch, and tokens behind it: of small sizes, since each token meets those before it.
  void long_cache(const Case& base) {
    for (const CaseForm& form : system_.forms) {
      if (!form.decodes) continue;
      Case c = base;
      c.form = form.name;
      if (form.chunked && !chunked()) c.chunk = 0;
      c = few_of_each_size(std::move(c));
      c.B = 2, c.T = 521, c.prefill = 519;
      if (possible(c) && work_of(kernel_, c) <= kMostOfModel) put(c);
      // One token at a time across the end of a tile.
      c.B = 1;
      for (const Index tile : {64, 128}) {
        c.T = tile + 2, c.prefill = tile - 1;
        if (possible(c) && work_of(kernel_, c) <= kMostOfWidths) put(c);
      }
    }
  }

  /// A model's heads behind a prompt, one token at a time.
  void decoded(const std::string& part) {
    for (const CaseForm& form : system_.forms) {
      if (!form.decodes) continue;
      Case c = with_part(kernel_, start_, part);
      c.form = form.name;
      if (form.chunked && !chunked()) c.chunk = 0;
      for (c.T = 70; c.T >= 3; c.T /= 2) {
        c.prefill = c.T - 2;
        if (!possible(c) || work_of(kernel_, c) > kMostOfWidths) continue;
        put(c);
        break;
      }
    }
  }

  /// Every value of every key that has some, alone and in a batch.
  void settings(const Case& base) {
    for (const Key& key : keys()) {
      if (!tries(kernel_, key)) continue;
      for (const std::string_view value : key.values) {
        Case c = base;
        key.parse(c, value);
        put(c);
        if (key.name == "B" || c == base || over_ranks(kernel_)) continue;
        c.B = 2;
        put(c);
        for (const CaseForm& form : system_.forms) {
          if (!form.decodes) continue;
          c.form = form.name;
          if (form.chunked && !chunked()) c.chunk = 0;
          c.prefill = std::min<Index>(13, c.T);
          put(c);
        }
      }
    }
  }

  void chunks(const Case& base) {
    if (!chunked()) return;
    for (const Index chunk : {1, 2, 5, 21, 31, 32, 48, 64}) {
      Case c = base;
      c.chunk = chunk;
      put(c);
      c.T = 70;
      if (possible(c) && work_of(kernel_, c) <= 1.0) put(c);
    }
    // Tokens of one chunk that see each other across 128 and more: what decays in between is in no output.
    if (!system_.has_key("dk")) return;
    for (const Index chunk : {160, 256}) {
      for (const std::string_view regime : {"normal", "none", "slow"}) {
        if (system_.regime(regime) == nullptr) continue;
        Case c = with_part(kernel_, base, "dk=8 dv=4");
        c.chunk = chunk;
        c.T = chunk + 3;
        c.regime = regime;
        put(c);
      }
    }
  }

  /// More tokens than 16 bits count, where none meets another: the rest's are among their systems' limits.
  void many_tokens(const Case& base) {
    if (!system_.has(Property::token_wise)) return;
    for (const Index width : {16, 8, 4, 3}) {
      Case c = few_of_each_size(base, width);
      c.T = 65537;
      if (!possible(c) || work_of(kernel_, c) > kMostOfModel) continue;
      put(c);
      return;
    }
  }

  [[nodiscard]] Case few_of_each_size(Case c, Index most = 3) const {
    return samestate::few_of_each_size(kernel_, start_, std::move(c), most);
  }

  const KernelTable& table_;
  const KernelRow& kernel_;
  const System& system_;
  Case start_;
  std::vector<Case> out_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<Case> edges_of(const KernelTable& table, const KernelRow& kernel) {
  return Edges(table, kernel).take();
}

}  // namespace samestate
