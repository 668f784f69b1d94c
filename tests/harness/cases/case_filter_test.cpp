#include "harness/cases/case_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "reference/error.h"

namespace samestate {
namespace {

bool kept(const char* text, const char* line, const char* kernel = "") {
  CaseFilter filter;
  filter.where(text);
  return filter.takes(parse_case(line), kernel);
}

bool dropped(const char* text, const char* line) {
  CaseFilter filter;
  filter.exclude(text);
  return !filter.takes(parse_case(line));
}

std::string filter_complaint(const char* text) {
  try {
    CaseFilter filter;
    filter.where(text);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(CaseFilter, ReadsEveryKeyWhetherTheLineNamesItOrNot) {
  const char* line = "v1 gated_delta_rule chunk=16 T=65 Hk=2 Hv=4 dk=16 contract=bf16 regime=slow seed=0x2a";
  for (const char* text : {"chunk=16",
                           "T=64..65",
                           "T=65..",
                           "T=..65",
                           "Hv=1,4",
                           "dv=16",
                           "B=1",
                           "contract=bf16",
                           "contract=bf*",
                           "contract=fp32,bf16",
                           "regime=slow",
                           "layout=dense",
                           "state=none",
                           "law=none",
                           "form=chunked",
                           "seed=42",
                           "seed=0x2a",
                           "l2norm=0",
                           "heads=interleaved",
                           "scale=none",
                           "lengths=none",
                           "system=gated_*",
                           "T=65 Hk=2 contract=bf16"}) {
    EXPECT_TRUE(kept(text, line)) << text;
    EXPECT_TRUE(dropped(text, line)) << text;
  }
  for (const char* text :
       {"chunk=17", "T=66..", "T=..64", "Hv=1..3", "dv=8", "contract=fp32", "regime=normal",
        "layout=padded,far", "law=*", "form=recurrent", "l2norm=1", "heads=tiled", "T=65 Hk=3", "scale=1"}) {
    EXPECT_FALSE(kept(text, line)) << text;
    EXPECT_FALSE(dropped(text, line)) << text;
  }
}

TEST(CaseFilter, WhatACaseDoesNotHaveMeetsNoCondition) {
  EXPECT_FALSE(kept("dk=..4096", "v1 rms_norm form=fused T=8"));
  EXPECT_TRUE(kept("D=..4096", "v1 rms_norm form=fused T=8"));
  EXPECT_FALSE(dropped("dk=..4096", "v1 rms_norm form=fused T=8"));
  EXPECT_FALSE(kept("chunk=64", "v1 retention form=recurrent")) << "no chunk is read there";
  EXPECT_TRUE(kept("chunk=64", "v1 retention"));
  EXPECT_FALSE(kept("prefill=0", "v1 retention"));
  EXPECT_TRUE(kept("lengths=0", "v1 retention form=packed lengths=0,17")) << "any of them";
  EXPECT_FALSE(kept("lengths=1..16", "v1 retention form=packed lengths=0,17"));
  EXPECT_TRUE(kept("T=17", "v1 retention form=packed lengths=0,17"));
}

TEST(CaseFilter, TheKernelIsTheOneThatTheCaseRunsOn) {
  EXPECT_TRUE(kept("kernel=cpu.*", "v1 retention", "cpu.retention.chunked"));
  EXPECT_FALSE(kept("kernel=my.*", "v1 retention", "cpu.retention.chunked"));
  CaseFilter filter;
  filter.exclude("kernel=cpu.*");
  EXPECT_TRUE(filter.reads_kernel());
}

TEST(CaseFilter, SeveralNarrowAndSeveralExclusionsDropMore) {
  CaseFilter filter;
  filter.where("T=..100");
  filter.where("contract=fp32");
  filter.exclude("regime=slow T=50..");
  filter.exclude("layout=far");
  EXPECT_TRUE(filter.takes(parse_case("v1 retention T=40 regime=slow")));
  EXPECT_FALSE(filter.takes(parse_case("v1 retention T=50 regime=slow")));
  EXPECT_FALSE(filter.takes(parse_case("v1 retention T=101")));
  EXPECT_FALSE(filter.takes(parse_case("v1 retention T=9 layout=far")));
  EXPECT_EQ(
      filter.text(),
      "--where 'T=..100' --where 'contract=fp32' --exclude 'regime=slow T=50..' --exclude 'layout=far'");
}

// An option of a key's name has the value alone, and is named so.
TEST(CaseFilter, AnOptionOfTheKeyIsNamedAsItWasGiven) {
  CaseFilter filter;
  filter.where("contract=bf16", "--contract");
  EXPECT_EQ(filter.text(), "--contract 'bf16'");
  try {
    filter.where("contract=bf17", "--contract");
    FAIL() << "bf17 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("--contract bf17: no such contract"), 0U) << error.what();
  }
}

TEST(CaseFilter, ErrorsNameValueKnownValuesAndRemedy) {
  const auto says = [](const char* text, std::initializer_list<const char*> words) {
    const std::string error = filter_complaint(text);
    for (const char* word : words) EXPECT_NE(error.find(word), std::string::npos) << text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  };
  says("contract=bf17", {"bf17", "known", "bf16", "tf32"});
  says("regime=fast", {"fast", "known", "measured"});
  says("form=rolled", {"rolled", "known", "chunked", "fused"});
  says("law=gravity", {"gravity", "known", "causality"});
  says("system=mamba_ssm", {"mamba_ssm", "nearest: mamba_mixer", "samestate list systems"});
  says("layout=upside", {"upside", "dense, padded, far"});
  says("size=4", {"'size'", "known keys", "chunk", "norm_groups"});
  says("T", {"KEY=VALUE", "T=64..4096"});
  says("T=", {"empty value", "T=none"});
  says("T=long", {"long", "64..4096"});
  says("T=9..3", {"empty range", "3..9"});
  says("T=..", {"64.."});
  says("T=1.5.6", {"no number"});
  says(" ", {"KEY=VALUE"});
  says("contract=x*", {"x*", "known"});
}

// A key of the table that a filter cannot read would be a hole in the grammar.
TEST(CaseFilter, ReadsWhatEachKeysRowPrints) {
  for (const System* system : systems()) {
    const Case c = system->standard();
    for (const std::string_view name : system->keys) {
      const auto key =
          std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return k.name == name; });
      const std::string value = key->value(c);
      // Others are the form's.
      constexpr std::array kOfForms{"kernel", "chunk", "prefill", "step", "cached", "ranks", "cuts"};
      if (std::ranges::find(kOfForms, name) != kOfForms.end()) continue;
      CaseFilter filter;
      filter.where(std::string(name) + "=" + (value.empty() ? "none" : value));
      EXPECT_TRUE(filter.takes(c)) << system->name << " " << name << "=" << value;
    }
    for (const CaseSize& size : system->sizes) {
      if (!size.own) continue;
      CaseFilter filter;
      filter.where(std::string(size.name) + "=" + std::to_string(size.standard));
      EXPECT_TRUE(filter.takes(c)) << system->name << " " << size.name;
    }
  }
}

}  // namespace
}  // namespace samestate
