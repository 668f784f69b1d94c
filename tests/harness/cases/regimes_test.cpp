#include "harness/cases/regimes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "harness/cases/generate.h"
#include "harness/cases/resolved.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {

BatchShape shape_of(std::int64_t B, std::int64_t T, std::int64_t Hk, std::int64_t Hv, std::int64_t dk,
                    std::int64_t dv) {
  BatchShape s;
  s.B = B, s.T = T, s.Hk = Hk, s.Hv = Hv, s.dk = dk, s.dv = dv;
  s.initial_state = true;
  return s;
}

Batch draw(std::string_view regime, const BatchShape& shape, std::string_view contract = "fp32",
           std::uint64_t seed = 3) {
  const auto row = std::find_if(regimes().begin(), regimes().end(),
                                [&](const Regime& other) { return other.name == regime; });
  return generate({shape, &*row, seed, true, true, &contract_named(contract)});
}

struct Tensor {
  const char* name;
  std::vector<float> Batch::*values;
  std::int64_t BatchShape::*heads;
  std::int64_t BatchShape::*width;  ///< null for one number per head
};
const std::vector<Tensor> kTensors = {{"q", &Batch::q, &BatchShape::Hk, &BatchShape::dk},
                                      {"k", &Batch::k, &BatchShape::Hk, &BatchShape::dk},
                                      {"v", &Batch::v, &BatchShape::Hv, &BatchShape::dv},
                                      {"g", &Batch::g, &BatchShape::Hv, nullptr},
                                      {"beta", &Batch::beta, &BatchShape::Hv, nullptr}};

/// Element [b, t, h, c] of a tensor of the batch.
float element(const Batch& batch, const Tensor& tensor, std::int64_t b, std::int64_t t, std::int64_t h,
              std::int64_t c) {
  const std::int64_t H = batch.shape.*tensor.heads;
  const std::int64_t D = tensor.width ? batch.shape.*tensor.width : 1;
  return (batch.*tensor.values)[static_cast<std::size_t>(((b * batch.shape.T + t) * H + h) * D + c)];
}

/// Returns the first element that two batches share by coordinates and in which they differ; empty if there
/// is none.
std::string difference(const Batch& a, const Batch& b, const std::set<std::string>& only = {}) {
  for (const Tensor& tensor : kTensors) {
    if (!only.empty() && !only.contains(tensor.name)) continue;
    const std::int64_t D = tensor.width ? std::min(a.shape.*tensor.width, b.shape.*tensor.width) : 1;
    for (std::int64_t n = 0; n < std::min(a.shape.B, b.shape.B); ++n) {
      for (std::int64_t t = 0; t < std::min(a.shape.T, b.shape.T); ++t) {
        for (std::int64_t h = 0; h < std::min(a.shape.*tensor.heads, b.shape.*tensor.heads); ++h) {
          for (std::int64_t c = 0; c < D; ++c) {
            if (element(a, tensor, n, t, h, c) != element(b, tensor, n, t, h, c)) {
              return std::string(tensor.name) + " at " + testing::PrintToString(std::vector{n, t, h, c});
            }
          }
        }
      }
    }
  }
  return {};
}

class EachRegime : public testing::TestWithParam<Regime> {
 protected:
  [[nodiscard]] static std::string_view name() { return GetParam().name; }
};

TEST_P(EachRegime, ShrinkingLeavesTheRestAsItWas) {
  const BatchShape full = shape_of(3, 40, 3, 6, 12, 10);
  const Batch whole = draw(name(), full);
  for (std::int64_t BatchShape::*size : {&BatchShape::B, &BatchShape::T, &BatchShape::Hk, &BatchShape::Hv}) {
    BatchShape less = full;
    less.*size = size == &BatchShape::Hv ? 3 : 1;
    EXPECT_EQ(difference(whole, draw(name(), less)), "");
  }
  BatchShape narrow = full;
  narrow.dv = 3;
  EXPECT_EQ(difference(whole, draw(name(), narrow)), "");
  // The state: [N, Hv, dk, dv].
  BatchShape one = full;
  one.B = 1;
  const Batch first = draw(name(), one);
  EXPECT_TRUE(
      std::equal(first.initial_state.begin(), first.initial_state.end(), whole.initial_state.begin()));
  // Another seed is other data; a regime that is all constants has its values elsewhere.
  EXPECT_NE(difference(whole, draw(name(), full, "fp32", 4)), "");
}

TEST_P(EachRegime, ShrinkingdkLeavesRawKeysAsTheyWere) {
  // The kernel normalises, so the generator does not; one-hot keys and pools are drawn among dk.
  const bool among = GetParam().exact || name() == "memorised" || name() == "tiny_norms";
  const std::set<std::string> tensors = among ? std::set<std::string>{"g", "beta"} : std::set<std::string>{};
  BatchShape full = shape_of(2, 20, 2, 4, 12, 10);
  full.l2norm = true;
  BatchShape less = full;
  less.dk = 5;
  EXPECT_EQ(difference(draw(name(), full), draw(name(), less), tensors), "");
}

TEST_P(EachRegime, FiniteAndRepresentableInEveryContract) {
  for (const NamedContract& row : contracts()) {
    for (bool l2norm : {false, true}) {
      BatchShape shape = shape_of(2, 70, 2, 4, 16, 8);
      shape.l2norm = l2norm;
      const Batch batch = draw(name(), shape, row.contract.name);
      EXPECT_NO_THROW(require_finite(batch)) << row.contract.name;
      for (const Tensor& tensor : kTensors) {
        const Format format = tensor.width ? row.contract.input : Format::fp32;
        for (float x : batch.*tensor.values) {
          ASSERT_EQ(round_to(x, format), x) << tensor.name << " under " << row.contract.name;
          ASSERT_LE(std::abs(static_cast<double>(x)), largest_finite(format) / 2) << tensor.name;
        }
      }
      for (float x : batch.initial_state) {
        ASSERT_TRUE(std::isfinite(x));
        ASSERT_EQ(round_to(x, row.contract.state), x) << "state under " << row.contract.name;
      }
      for (float g : batch.g) ASSERT_LE(g, 0.0F);
      for (float beta : batch.beta) ASSERT_TRUE(beta >= 0.0F && beta <= 2.0F) << beta;
    }
  }
}

// A packed sequence is the dense one of the same number.
TEST_P(EachRegime, PackedSequencesCountTokensFromTheirStart) {
  BatchShape packed = shape_of(1, 30, 2, 2, 8, 8);
  packed.offsets = {0, 13, 13, 30};
  const Batch together = draw(name(), packed);
  const Batch dense = draw(name(), shape_of(3, 17, 2, 2, 8, 8));
  for (std::int64_t n : {0, 2}) {
    for (std::int64_t t = 0; t < packed.end(n) - packed.begin(n); ++t) {
      for (const Tensor& tensor : kTensors) {
        ASSERT_EQ(element(together, tensor, 0, packed.begin(n) + t, 1, 0), element(dense, tensor, n, t, 1, 0))
            << tensor.name << " of sequence " << n << ", token " << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Regimes, EachRegime, testing::ValuesIn(regimes().begin(), regimes().end()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

/// Rows of a [B, T, H, D] tensor as vectors, and what the claims below ask of them.
struct Rows {
  std::vector<std::vector<float>> rows;
  Rows(const Batch& batch, const char* name) {
    for (const Tensor& tensor : kTensors) {
      if (std::string_view(tensor.name) != name) continue;
      const std::int64_t D = batch.shape.*tensor.width;
      for (std::size_t at = 0; at < (batch.*tensor.values).size(); at += static_cast<std::size_t>(D)) {
        const auto begin = (batch.*tensor.values).begin() + static_cast<std::ptrdiff_t>(at);
        rows.emplace_back(begin, begin + D);
      }
    }
  }
  [[nodiscard]] std::size_t distinct() const { return std::set(rows.begin(), rows.end()).size(); }
  /// Smallest and largest 2-norm.
  [[nodiscard]] std::pair<double, double> lengths() const {
    double least = 1e300, most = 0;
    for (const auto& row : rows) {
      double sum = 0;
      for (float x : row) sum += static_cast<double>(x) * static_cast<double>(x);
      least = std::min(least, std::sqrt(sum));
      most = std::max(most, std::sqrt(sum));
    }
    return {least, most};
  }
};

bool all(const std::vector<float>& x, float least, float most) {
  return !x.empty() && std::all_of(x.begin(), x.end(), [&](float e) { return e >= least && e <= most; });
}
double share(const std::vector<float>& x, const std::function<bool(float)>& has) {
  return static_cast<double>(std::count_if(x.begin(), x.end(), has)) / static_cast<double>(x.size());
}
bool whole_numbers(const std::vector<float>& x, float most) {
  return std::all_of(x.begin(), x.end(), [&](float e) { return e == std::rint(e) && std::abs(e) <= most; });
}
bool keys_of_length(const Batch& b, double length, double tolerance = 1e-6) {
  const auto [least, most] = Rows(b, "k").lengths();
  return std::abs(least - length) <= tolerance * length && std::abs(most - length) <= tolerance * length;
}
double largest(const std::vector<float>& x) {
  double most = 0;
  for (float e : x) most = std::max(most, std::abs(static_cast<double>(e)));
  return most;
}
bool one_hot(const Batch& b, const char* name, float size) {
  const Rows rows(b, name);
  return std::all_of(rows.rows.begin(), rows.rows.end(), [&](const std::vector<float>& row) {
    return std::count(row.begin(), row.end(), 0.0F) == std::ssize(row) - 1 &&
           std::abs(*std::max_element(row.begin(), row.end(),
                                      [](float a, float c) { return std::abs(a) < std::abs(c); })) == size;
  });
}

using Claim = std::function<bool(const Batch&)>;
/// The promise of each name, on B = 1, T = 300, one head, dk = dv = 16, fp32.
const std::map<std::string_view, Claim> kClaims = {
    {"normal", [](const Batch& b) { return keys_of_length(b, 1) && all(b.g, -2, 0) && all(b.beta, 0, 1); }},
    {"slow", [](const Batch& b) { return all(b.g, -1e-3F, 0); }},
    {"none", [](const Batch& b) { return all(b.g, 0, 0); }},
    {"strong", [](const Batch& b) { return all(b.g, -100, -20); }},
    {"plateau",
     [](const Batch& b) {
       const double strong = share(b.g, [](float g) { return g <= -20 && g >= -120; });
       return strong > 0.04 && strong < 0.18 && share(b.g, [](float g) { return g >= -1e-3F; }) == 1 - strong;
     }},
    {"reset",
     [](const Batch& b) {
       const double hard = share(b.g, [](float g) { return g == -1e38F; });
       const double soft = share(b.g, [](float g) { return g == -150.0F; });
       return hard > 0 && soft > 0 &&
              std::abs(share(b.g, [](float g) { return g >= -1e-3F; }) + hard + soft - 1) < 1e-9;
     }},
    {"measured",
     [](const Batch& b) { return all(b.g, -316, 0) && largest(b.g) > 100 && all(b.v, -0.2801F, 24.81F); }},
    {"retnet", [](const Batch& b) { return all(b.g, std::log1p(-0x1p-5F), std::log1p(-0x1p-5F)); }},
    {"beta_zero", [](const Batch& b) { return all(b.beta, 0, 1e-3F) && all(b.g, -1e-3F, 0); }},
    {"beta_one", [](const Batch& b) { return all(b.beta, 0.999F, 1); }},
    {"beta_two", [](const Batch& b) { return all(b.beta, 1.5F, 2) && largest(b.beta) > 1.95; }},
    {"collinear",
     [](const Batch& b) {
       const Rows k(b, "k");
       return k.distinct() == k.rows.size() &&
              std::all_of(k.rows.begin(), k.rows.end(), [&](const auto& row) {
                double dot = 0;
                for (std::size_t i = 0; i < row.size(); ++i)
                  dot += static_cast<double>(row[i]) * k.rows[0][i];
                return dot > 0.99;
              });
     }},
    {"identical",
     [](const Batch& b) { return Rows(b, "k").distinct() == 1 && Rows(b, "v").distinct() == 300; }},
    {"identical_beta_two",
     [](const Batch& b) { return Rows(b, "k").distinct() == 1 && all(b.beta, 1.8F, 2); }},
    {"pool4", [](const Batch& b) { return Rows(b, "k").distinct() == 4 && Rows(b, "v").distinct() == 300; }},
    {"constant",
     [](const Batch& b) {
       return Rows(b, "q").distinct() == 1 && Rows(b, "k").distinct() == 1 && Rows(b, "v").distinct() == 1 &&
              std::set(b.g.begin(), b.g.end()).size() == 1 &&
              std::set(b.beta.begin(), b.beta.end()).size() == 1;
     }},
    {"constant_gates",
     [](const Batch& b) {
       return Rows(b, "k").distinct() == 300 && std::set(b.g.begin(), b.g.end()).size() == 1 &&
              std::set(b.beta.begin(), b.beta.end()).size() == 1;
     }},
    {"period2",
     [](const Batch& b) {
       const Rows k(b, "k"), v(b, "v");
       return k.distinct() == 2 && v.distinct() == 2 && k.rows[0] == k.rows[2] && k.rows[0] != k.rows[1];
     }},
    {"unnormalised",
     [](const Batch& b) {
       const auto [least, most] = Rows(b, "k").lengths();
       return least < 1 && most > 1.5 && most < 3;
     }},
    {"unnormalised15", [](const Batch& b) { return keys_of_length(b, 1.5); }},
    {"tiny_v", [](const Batch& b) { return largest(b.v) < 7e-6 && largest(b.v) > 1e-6; }},
    {"huge_v", [](const Batch& b) { return largest(b.v) > 2e4 && largest(b.v) < 7e4; }},
    {"tiny_norms", [](const Batch& b) { return keys_of_length(b, 1e-4); }},
    {"positive", [](const Batch& b) { return all(b.q, 0, 1) && all(b.k, 0, 1) && all(b.v, 0, 7); }},
    {"spike",
     [](const Batch& b) {
       const auto [least, most] = Rows(b, "v").lengths();
       return most > 1000 * least;
     }},
    {"memorised",
     [](const Batch& b) {
       const Rows k(b, "k"), v(b, "v");
       std::set<std::pair<std::vector<float>, std::vector<float>>> pairs;
       for (std::size_t t = 0; t < k.rows.size(); ++t) pairs.emplace(k.rows[t], v.rows[t]);
       return k.distinct() == 8 && pairs.size() == 8 && all(b.beta, 0.9F, 1) && all(b.g, 0, 0);
     }},
    {"silence",
     [](const Batch& b) {
       const Rows v(b, "v");
       double written = 0.0, decay = 0.0;
       for (std::size_t t = 0; t < v.rows.size(); ++t) {
         const bool silent = std::count(v.rows[t].begin(), v.rows[t].end(), 0.0F) == std::ssize(v.rows[t]);
         if (silent != (t >= 16) || (b.beta[t] == 0) != silent) return false;
         if (t >= 72 && b.g[t] != 0) return false;
         if (silent) decay += b.g[t];
         written += silent ? 0 : 1;
       }
       return written == 16 && decay < -40 && decay > -100;
     }},
    {"zeros",
     [](const Batch& b) {
       const Rows q(b, "q"), k(b, "k"), v(b, "v");
       int no_ops = 0;
       for (std::size_t t = 0; t < k.rows.size(); ++t) {
         if (b.beta[t] != 0) continue;
         ++no_ops;
         const auto zero = [](const std::vector<float>& row) {
           return std::count(row.begin(), row.end(), 0.0F) == std::ssize(row);
         };
         if (!zero(q.rows[t]) || !zero(k.rows[t]) || !zero(v.rows[t]) || b.g[t] != 0) return false;
       }
       return no_ops > 100 && no_ops < 200;
     }},
    {"zero_keys",
     [](const Batch& b) {
       const auto zeros = [](const Rows& rows) {
         return std::count_if(rows.rows.begin(), rows.rows.end(), [](const std::vector<float>& row) {
           return std::count(row.begin(), row.end(), 0.0F) == std::ssize(row);
         });
       };
       const auto k = zeros(Rows(b, "k")), q = zeros(Rows(b, "q"));
       return k > 60 && k < 140 && q > 60 && q < 140 && zeros(Rows(b, "v")) == 0 &&
              share(b.beta, [](float beta) { return beta > 0; }) == 1;
     }},
    {"huge_state", [](const Batch& b) { return largest(b.initial_state) > 65504 && all(b.g, -1e-3F, 0); }},
    {"exact",
     [](const Batch& b) {
       return one_hot(b, "k", 1) && one_hot(b, "q", 2) && whole_numbers(b.v, 1) &&
              whole_numbers(b.initial_state, 3) && whole_numbers(b.beta, 1) && all(b.g, 0, 0);
     }},
    {"exact_reset",
     [](const Batch& b) {
       const double resets = share(b.g, [](float g) { return g == -1e38F; });
       return one_hot(b, "k", 1) && resets > 0.04 && resets < 0.18 &&
              share(b.g, [](float g) { return g == 0; }) == 1 - resets;
     }},
};

TEST(Regimes, HaveThePropertyTheirNameClaims) {
  const BatchShape shape = shape_of(1, 300, 1, 1, 16, 16);
  for (const Regime& regime : regimes()) {
    ASSERT_TRUE(kClaims.contains(regime.name)) << regime.name;
    EXPECT_TRUE(kClaims.at(regime.name)(draw(regime.name, shape))) << regime.name;
  }
  EXPECT_EQ(kClaims.size(), regimes().size());
}

// The claims bite: data of the normal regime satisfies none but its own.
TEST(Regimes, ClaimsAreNotEmpty) {
  const Batch normal = draw("normal", shape_of(1, 300, 1, 1, 16, 16));
  for (const auto& [name, claim] : kClaims) EXPECT_EQ(claim(normal), name == "normal") << name;
}

// Sweeps give their points more time by it.
TEST(Regimes, LastingOnesAreThoseWhoseDecayIsSlow) {
  for (const Regime& regime : regimes()) {
    const Batch b = draw(regime.name, shape_of(2, 300, 4, 4, 4, 4));
    EXPECT_EQ(all(b.g, -1e-3F, 0), regime.lasting) << regime.name;
  }
}

TEST(Regimes, UnknownNameIsAnErrorThatListsThem) {
  try {
    (void)Resolved(parse_case("v1 gated_delta_rule regime=norma"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("norma"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("exact_reset"), std::string::npos);
  }
}

// The regime is one of another system: the message says why this system lacks it, and what it has.
TEST(Regimes, ARegimeOfWhatASystemLacksSaysSo) {
  const auto refused = [](const char* line) {
    try {
      (void)Resolved(parse_case(line));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(lacking(refused("v1 delta_rule regime=slow"), "regime=slow decay delta_rule normal"), "");
  EXPECT_EQ(lacking(refused("v1 retention regime=beta_two"), "regime=beta_two beta retention"), "");
  EXPECT_EQ(lacking(refused("v1 rms_norm regime=slow"), "rms_norm normal large"), "");
  EXPECT_EQ(lacking(refused("v1 rms_norm regime=collinear"), "regime=collinear rms_norm"), "");
}

// Values pinned, so that another machine, library or edit of the generator is noticed: the integers and
// correctly rounded operations of Counter, and libm's exp and log1p in g and beta to one ulp.
TEST(Regimes, KnownAnswers) {
  const Batch b = draw("normal", shape_of(1, 2, 1, 1, 2, 2), "fp32", 42);
  EXPECT_EQ(b.v, (std::vector<float>{-0x1.01638a0000000p+0F, -0x1.b26b840000000p-4F, -0x1.61c5780000000p-4F,
                                     0x1.923de20000000p+0F}));
  EXPECT_EQ(b.k, (std::vector<float>{-0x1.5880440000000p-2F, -0x1.e227c40000000p-1F, -0x1.bf235c0000000p-1F,
                                     0x1.f2d83a0000000p-2F}));
  EXPECT_EQ(b.initial_state, (std::vector<float>{0x1.3ed73e0000000p-3F, -0x1.d632f40000000p-2F,
                                                 0x1.93a9720000000p-1F, 0x1.c419060000000p-5F}));
  EXPECT_FLOAT_EQ(b.g[1], -0x1.858c740000000p-2F);
  EXPECT_FLOAT_EQ(b.beta[1], 0x1.0ac35e0000000p-1F);
}

}  // namespace
}  // namespace samestate
