#include "harness/cases/case_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <sstream>

#include "harness/cases/resolved.h"
#include "harness/run/run_case.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Returns what parse_case and Resolved say about a line; empty if they accept it.
std::string complaint(std::string_view line) {
  try {
    (void)Resolved(parse_case(line));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

bool one_printable_line(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) - 0x20U >= 0x5fU; });
}

class Draws {
 public:
  explicit Draws(std::uint32_t seed) : bits_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(n));
  }
  std::uint64_t word() { return bits_(); }
  template <class Values>
  auto pick(const Values& values) {
    return values[static_cast<std::size_t>(below(std::ssize(values)))];
  }

 private:
  std::mt19937_64 bits_;
};

Case random_case(Draws& draws) {
  const std::array<std::string, 7> forms{"recurrent", "chunked",           "parallel",     "decode",
                                         "packed",    "sequence_parallel", "head_parallel"};
  const std::array<std::string, 4> words{"", "a", "bf16", "x.y_z-9=="};
  Case c;
  c.system = draws.pick(std::array<std::string, 2>{"gated_delta_rule", "retention"});
  do c.form = draws.pick(forms);
  while (system_named(c.system).form(c.form) == nullptr);
  c.chunk = 1 + draws.below(100);
  c.T = draws.below(3) == 0 ? 64 : draws.below(500);
  c.B = 1 + draws.below(3);
  c.Hk = 1 + draws.below(3);
  c.Hv = c.Hk * (1 + draws.below(3));
  c.dk = 1 + draws.below(130);
  c.dv = draws.below(2) == 0 ? c.dk : 1 + draws.below(130);
  if (c.form == "decode") c.prefill = draws.below(c.T + 1);
  if (c.form == "decode" && draws.below(2) == 0) c.chunk = 0;
  if (c.form == "packed") {
    c.B = 1;
    c.T = 0;
    for (std::int64_t n = 1 + draws.below(6); n > 0; --n) c.T += c.lengths.emplace_back(draws.below(40));
  }
  const bool ranked = c.form == "sequence_parallel" || c.form == "head_parallel";
  if (ranked || ((c.form == "packed" || c.form == "decode") && c.chunk > 0)) {
    c.ranks = 1 + draws.below(9);
    if (c.ranks > 1 && draws.below(2) == 0) c.cuts = "drawn";
    if (c.ranks > 1 && !ranked && draws.below(3) == 0) c.cuts = "heads";
  }
  c.heads = draws.below(2) == 0 ? HeadMap::tiled : HeadMap::interleaved;
  c.l2norm = draws.below(2) == 0;
  if (draws.below(2) == 0) {
    c.scale = static_cast<double>(std::ldexp(static_cast<float>(draws.below(1 << 24)) - 8e6F,
                                             static_cast<int>(draws.below(200)) - 140));
  }
  if (draws.below(2) == 0) c.contract = draws.pick(std::array<std::string, 2>{"bf16", "tf32_block16"});
  if (draws.below(2) == 0) c.regime = draws.pick(std::array<std::string, 3>{"slow", "measured", "exact"});
  c.state = draws.pick(std::array<std::string, 2>{"none", "random"});
  c.layout = std::string(draws.pick(layout_names()));
  c.final_state = draws.pick(std::array<std::string, 3>{"apart", "none", "in_place"});
  if (c.state == "none" && c.final_state == "in_place") c.final_state = "none";
  if (c.form == "packed" && draws.below(2) == 0) c.lead = draws.below(3), c.slack = draws.below(70);
  c.repeat = draws.below(2) == 0;
  if (system_named(c.system).native(c.form))
    c.law = draws.pick(std::array<std::string, 3>{"", "split", "serving"});
  c.kernel = draws.pick(words);
  c.seed = draws.below(3) == 0 ? 0 : draws.word();
  return c;
}

TEST(CaseLine, RoundTrip) {
  Draws draws(1);
  for (int i = 0; i < 2000; ++i) {
    const Case c = random_case(draws);
    const std::string line = format_case(c);
    ASSERT_EQ(parse_case(line), c) << line;
    ASSERT_EQ(format_case(parse_case(line)), line);
  }
}

TEST(CaseLine, CanonicalLineOmitsDefaults) {
  Case c;
  c.system = "retention";
  EXPECT_EQ(format_case(c), "v1 retention");
  EXPECT_EQ(parse_case("v1 retention"), c);
  // Hv, dv and T follow Hk, dk and the lengths.
  EXPECT_EQ(format_case(
                parse_case("v1 retention Hk=2 Hv=2 dk=16 dv=16 T=64 seed=0 l2norm=0 form=chunked chunk=64")),
            "v1 retention Hk=2 dk=16");
  EXPECT_EQ(format_case(parse_case("v1 retention form=packed lengths=3,0,4 T=7")),
            "v1 retention form=packed lengths=3,0,4");
  EXPECT_EQ(parse_case("v1 retention form=packed lengths=3,0,4").T, 7);
  EXPECT_EQ(parse_case("v1 retention Hk=3").Hv, 3);
  EXPECT_EQ(parse_case("v1 retention dk=3").dv, 3);
  EXPECT_EQ(parse_case("v1 retention seed=42"), parse_case("v1 retention seed=0x2A"));
}

TEST(CaseLine, TapsAreALayersKey) {
  const Case c = parse_case("v1 dendritic_attention taps=1 T=3");
  EXPECT_TRUE(c.taps);
  EXPECT_EQ(format_case(c), "v1 dendritic_attention T=3 taps=1");
  EXPECT_EQ(format_case(parse_case("v1 gated_delta_net taps=0")).find("taps"), std::string::npos);
}

TEST(CaseLine, KeyOrderAndSpacesAreFree) {
  const Case c =
      parse_case("v1 gated_delta_rule chunk=16 T=65 Hk=2 Hv=4 dk=16 dv=8 contract=bf16 seed=0x2a scale=0.5");
  std::vector<std::string> keys{"chunk=16", "T=65",          "Hk=2",      "Hv=4",     "dk=16",
                                "dv=8",     "contract=bf16", "seed=0x2a", "scale=0.5"};
  std::mt19937 bits(7);
  for (int i = 0; i < 100; ++i) {
    std::shuffle(keys.begin(), keys.end(), bits);
    std::string line = " v1\tgated_delta_rule";
    for (const std::string& key : keys) line += "  " + key;
    ASSERT_EQ(parse_case(line + "\r\n"), c) << line;
  }
}

struct Bad {
  const char* name;
  const char* line;
  std::vector<const char*> says;  ///< key, value and remedy
};
class BadLine : public testing::TestWithParam<Bad> {};

TEST_P(BadLine, IsRefusedByKeyAndValue) {
  const std::string text = complaint(GetParam().line);
  ASSERT_FALSE(text.empty()) << "taken: " << GetParam().line;
  for (const char* part : GetParam().says)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  EXPECT_TRUE(one_printable_line(text)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    CaseLine, BadLine,
    testing::Values(
        Bad{"Empty", "", {"empty", "v1 SYSTEM"}}, Bad{"Blank", " \t ", {"empty"}},
        Bad{"Version2", "v2 retention", {"v2", "v1"}}, Bad{"NoVersion", "retention T=4", {"retention", "v1"}},
        Bad{"NoSystem", "v1", {"no system", "list systems"}}, Bad{"KeyForSystem", "v1 T=4", {"no system"}},
        Bad{"System", "v1 retentoin", {"retentoin", "retention"}},
        Bad{"UnknownKey", "v1 retention size=4", {"'size'", "known keys", "prefill"}},
        Bad{"KeyCase", "v1 retention t=4", {"'t'"}},
        Bad{"RepeatedKey", "v1 retention T=4 T=4", {"'T'", "twice"}},
        Bad{"NoValue", "v1 retention T=", {"'T'", "no value"}},
        Bad{"NoEquals", "v1 retention T", {"'T'", "T=VALUE"}},
        Bad{"EmptyKey", "v1 retention =4", {"unknown key ''"}},
        Bad{"DivisorZero", "v1 gated_attention form=online H=9 Hkv=0", {"Hkv=0", "must lie in 1.."}},
        Bad{"Form", "v1 retention form=chunky", {"form=chunky", "chunked"}},
        Bad{"FormOfSystem", "v1 delta_rule form=parallel", {"form=parallel", "delta_rule", "chunked"}},
        Bad{"Contract", "v1 retention contract=fp8", {"fp8", "bf16"}},
        Bad{"Regime", "v1 retention regime=odd", {"regime=odd", "normal"}},
        Bad{"RegimeOfSystem", "v1 delta_rule regime=slow", {"regime=slow", "delta_rule"}},
        Bad{"RegimeOfBeta", "v1 retention regime=beta_two", {"regime=beta_two", "retention"}},
        Bad{"Law", "v1 retention law=ohm", {"ohm", "causality"}},
        Bad{"LawOfForm", "v1 retention form=decode law=split", {"law=split", "decode"}},
        Bad{"State", "v1 retention state=zero", {"state=zero", "random"}},
        Bad{"Layout", "v1 retention layout=sparse", {"layout=sparse", "padded"}},
        Bad{"Final", "v1 retention final=lost", {"final=lost", "in_place"}},
        Bad{"FinalInNothing", "v1 retention final=in_place", {"final=in_place", "state=random"}},
        Bad{"Unowned", "v1 retention form=packed lengths=3,4 unowned=3", {"unowned=3", "3,5"}},
        Bad{"UnownedOfDense", "v1 retention unowned=3,5", {"unowned=3,5", "packed"}},
        Bad{"UnownedTooMany",
            "v1 retention form=packed lengths=1 dk=128 Hk=64 unowned=0,16777216",
            {"elements"}},
        Bad{"Repeat", "v1 retention repeat=2", {"repeat=2", "0..1"}},
        Bad{"Taps", "v1 gated_delta_net taps=2", {"taps=2", "0..1"}},
        Bad{"TapsOfNoLayer", "v1 retention taps=1", {"'taps'", "known keys"}},
        Bad{"TapsOfAnOperator", "v1 l2norm taps=1", {"'taps'", "known keys"}},
        Bad{"TapsOfALaw", "v1 gated_delta_net taps=1 law=split", {"taps=1", "law=split", "drop"}},
        Bad{"FinalOfOperator", "v1 rms_norm final=none", {"final", "known keys"}},
        Bad{"Heads", "v1 retention heads=grouped", {"heads=grouped", "tiled"}},
        Bad{"L2norm", "v1 retention l2norm=2", {"l2norm=2", "0..1"}},
        Bad{"HeadsMultiple", "v1 retention Hk=2 Hv=3", {"Hv=3", "Hk=2"}},
        Bad{"HeadsFewer", "v1 retention Hk=2 Hv=1", {"Hv=1", "Hk=2"}},
        Bad{"Chunk0", "v1 retention chunk=0", {"chunk=0", "recurrent"}},
        Bad{"NegativeT", "v1 retention T=-1", {"T=-1", "0.."}},
        Bad{"ZeroB", "v1 retention B=0", {"B=0", "1.."}}, Bad{"Zerodk", "v1 retention dk=0", {"dk=0"}},
        Bad{"Zerodv", "v1 retention dv=0", {"dv=0"}}, Bad{"ZeroHk", "v1 retention Hk=0", {"Hk=0"}},
        Bad{"NegativeHv", "v1 retention Hv=-2", {"Hv=-2"}},
        Bad{"NegativeChunk", "v1 retention chunk=-16", {"chunk=-16"}},
        Bad{"Size2To63", "v1 retention T=9223372036854775808", {"T=9223372036854775808"}},
        Bad{"Size2To63Less1", "v1 retention dk=9223372036854775807", {"dk=9223372036854775807"}},
        Bad{"Size2To64", "v1 retention B=18446744073709551616", {"B=18446744073709551616"}},
        Bad{"ProductOverflows",
            "v1 retention B=16777216 T=16777216 Hv=16777216 dk=16777216",
            {"elements", "1073741824"}},
        Bad{"StateTooLarge", "v1 retention T=1 Hv=4 dk=32768 dv=32768", {"elements"}},
        Bad{"NotANumber", "v1 retention T=4x", {"T=4x", "whole number"}},
        Bad{"Fraction", "v1 retention T=4.5", {"T=4.5"}}, Bad{"Plus", "v1 retention T=+4", {"T=+4"}},
        Bad{"Lengths", "v1 retention form=packed lengths=3,4 T=8", {"T=8", "7"}},
        Bad{"NegativeLength", "v1 retention form=packed lengths=3,-4", {"lengths", "-4"}},
        Bad{"HoleInLengths", "v1 retention form=packed lengths=3,,4", {"lengths"}},
        Bad{"CommaEndsLengths", "v1 retention form=packed lengths=3,", {"lengths"}},
        Bad{"HugeLength", "v1 retention form=packed lengths=9223372036854775807,1", {"lengths"}},
        Bad{"NoLengths", "v1 retention form=packed", {"lengths"}},
        Bad{"LengthsOfDense", "v1 retention lengths=3,4", {"lengths", "packed"}},
        Bad{"PackedRows", "v1 retention form=packed lengths=3,4 B=2", {"B=2", "B=1"}},
        Bad{"Prefill", "v1 retention form=decode T=8 prefill=9", {"prefill=9", "T=8"}},
        Bad{"StepOfTheFamily", "v1 retention form=decode T=8 step=4", {"step=4", "state=random"}},
        Bad{"StepOfOneCall", "v1 softmax_attention T=8 step=4", {"step", "decode"}},
        Bad{"CachedState", "v1 short_convolution form=decode T=8 prefill=4 cached=1", {"cached=1", "state"}},
        Bad{"CachedWithout", "v1 softmax_attention form=decode T=8 cached=1", {"prefill=0", "T=8"}},
        Bad{"CachedOfOneCall", "v1 softmax_attention T=8 cached=1", {"cached", "decode"}},
        Bad{"NoStep", "v1 softmax_attention form=decode T=8 step=0", {"step=0"}},
        Bad{"PrefillOfChunked", "v1 retention prefill=4", {"prefill", "decode"}},
        Bad{"NoRank", "v1 retention form=sequence_parallel ranks=0", {"ranks=0", "1..4096"}},
        Bad{"TooManyRanks", "v1 retention form=sequence_parallel ranks=4097", {"ranks=4097", "1..4096"}},
        Bad{"RanksOfChunked",
            "v1 retention ranks=2",
            {"ranks=2", "form=sequence_parallel", "form=head_parallel"}},
        Bad{"RanksWithoutChunks",
            "v1 retention form=packed chunk=0 lengths=3 ranks=2",
            {"ranks=2", "write chunk=64"}},
        Bad{"CutsOfOneRank", "v1 retention form=sequence_parallel cuts=drawn", {"cuts=drawn", "ranks"}},
        Bad{"UnknownCuts",
            "v1 retention form=sequence_parallel ranks=2 cuts=odd",
            {"cuts=odd", "even", "drawn"}},
        Bad{"HeadsOfTokens",
            "v1 retention form=sequence_parallel ranks=2 cuts=heads",
            {"cuts=heads", "write cuts=even or cuts=drawn", "form=head_parallel"}},
        Bad{"HeadsOfHeads",
            "v1 retention form=head_parallel ranks=2 cuts=heads",
            {"cuts=heads", "leave cuts out", "cuts=drawn"}},
        Bad{"HeadsOfChunked", "v1 retention ranks=2 cuts=heads", {"ranks=2", "head_parallel"}},
        Bad{"RanksOfOperator", "v1 mamba_mixer ranks=2", {"ranks"}},
        Bad{"ScaleNan", "v1 retention scale=nan", {"scale=nan", "finite"}},
        Bad{"ScaleInf", "v1 retention scale=-inf", {"scale=-inf", "finite"}},
        Bad{"ScaleHuge", "v1 retention scale=1e39", {"scale=1e39", "fp32"}},
        Bad{"ScaleBeyondDouble", "v1 retention scale=1e999", {"scale=1e999"}},
        Bad{"ScaleNotFp32", "v1 retention scale=0.1", {"scale=0.1", "fp32", "0.10000000149"}},
        Bad{"ScaleWord", "v1 retention scale=half", {"scale=half"}},
        Bad{"Seed", "v1 retention seed=0x", {"seed=0x", "64-bit"}},
        Bad{"SeedTooLarge", "v1 retention seed=18446744073709551616", {"seed=18446744073709551616"}},
        Bad{"SeedNegative", "v1 retention seed=-1", {"seed=-1"}},
        Bad{"Escape", "v1 retention T=\x1b[31m", {"0x1b", "position 15", "ASCII"}}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(CaseLine, UnknownKernelIsNamedWithTheRemedy) {
  const KernelTable table(kernels());
  const Case c = parse_case("v1 retention kernel=cuda.nope");
  try {
    (void)run_case(c, table);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("kernel=cuda.nope"), std::string::npos) << text;
    EXPECT_NE(text.find("samestate list kernels"), std::string::npos) << text;
  }
  EXPECT_THROW((void)run_case(parse_case("v1 retention kernel=cpu.delta_rule.chunked"), table), Error);
}

TEST(CaseLine, OverLongLineIsRefused) {
  EXPECT_EQ(complaint("v1 retention" + std::string(16000, ' ')), "");
  const std::string text = complaint("v1 retention" + std::string(17000, ' '));
  EXPECT_NE(text.find("17012"), std::string::npos) << text;
  EXPECT_NE(text.find("16384"), std::string::npos) << text;
}

TEST(CaseLine, ImpossibleCasesMadeInCodeAreRefused) {
  const auto refused = [](auto&& change) {
    Case c;
    c.system = "retention";
    change(c);
    try {
      (void)Resolved(c);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_FALSE(refused([](Case&) {}));
  EXPECT_TRUE(refused([](Case& c) { c.T = -1; }));
  EXPECT_TRUE(refused([](Case& c) { c.dk = std::numeric_limits<std::int64_t>::max(); }));
  EXPECT_TRUE(refused([](Case& c) { c.form = "decode", c.chunk = -1; }));
  EXPECT_TRUE(refused([](Case& c) { c.form = "decode", c.prefill = -1; }));
  EXPECT_TRUE(refused([](Case& c) { c.form = "packed", c.lengths = {-1, 65}; }));
  EXPECT_TRUE(refused([](Case& c) { c.scale = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](Case& c) { c.scale = 0.1; }));
  EXPECT_TRUE(refused([](Case& c) { c.state = "zero"; }));
  EXPECT_TRUE(refused([](Case& c) { c.B = 0; }));
}

TEST(CaseLine, GarbageIsAnErrorOrACase) {
  Draws draws(3);
  const std::array<std::string, 12> pieces{
      "v1", " ", "retention", "T=", "9", "lengths=", ",", "-", "scale=", "e", "=", "form=packed"};
  int taken = 0;
  for (int i = 0; i < 10000; ++i) {
    // Half pure bytes, half pieces of lines with a byte changed now and then.
    std::string line = i % 4 == 0 ? "v1 retention " : "";
    for (std::int64_t n = draws.below(60); n > 0; --n) {
      line += i % 2 == 0 && draws.below(8) != 0 ? draws.pick(pieces)
                                                : std::string(1, static_cast<char>(draws.below(256)));
    }
    const std::string text = complaint(line);
    taken += text.empty();
    ASSERT_TRUE(one_printable_line(text)) << i << ": " << testing::PrintToString(text);
  }
  EXPECT_LT(taken, 2500);
}

}  // namespace
}  // namespace samestate
