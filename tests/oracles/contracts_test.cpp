#include "oracles/contracts.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "reference/error.h"

namespace samestate {
namespace {

/// The fields of a contract that are formats of operands or of storage, the inputs apart.
constexpr Format Contract::*kRoundingPoints[] = {&Contract::qk,        &Contract::beta_k,
                                                 &Contract::A,         &Contract::T,
                                                 &Contract::beta_v,    &Contract::beta_exp_k,
                                                 &Contract::U,         &Contract::W,
                                                 &Contract::residual,  &Contract::state_operand,
                                                 &Contract::v_new,     &Contract::v_decayed,
                                                 &Contract::k_decayed, &Contract::P,
                                                 &Contract::q_decayed, &Contract::state,
                                                 &Contract::output};

constexpr Format kLowPrecision[] = {Format::tf32, Format::tf32_truncated, Format::bf16, Format::fp16};

TEST(Contracts, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const NamedContract& row : contracts()) {
    EXPECT_TRUE(names.insert(row.contract.name).second) << row.contract.name;
    EXPECT_FALSE(row.summary.empty()) << row.contract.name;
    EXPECT_EQ(&contract_named(row.contract.name), &row.contract);
  }
  EXPECT_EQ(names.count("fp32"), 1U);
  EXPECT_EQ(names.count("bf16"), 1U);
}

TEST(Contracts, UnknownNameListsTheKnownOnes) {
  for (const char* name : {"fp8", "", "BF16"}) {
    try {
      static_cast<void>(contract_named(name));
      FAIL() << "no Error for '" << name << "'";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("contract=" + std::string(name)), std::string::npos) << message;
      for (const NamedContract& row : contracts()) {
        EXPECT_NE(message.find(row.contract.name), std::string::npos) << message;
      }
    }
  }
}

TEST(Contracts, NoTwoOfThemPromiseTheSame) {
  std::set<std::string> seen;
  for (const NamedContract& row : contracts()) {
    const Contract& c = row.contract;
    std::string promise;
    for (Format Contract::*point : kRoundingPoints)
      promise += std::to_string(static_cast<int>(c.*point)) + " ";
    for (const int setting :
         {static_cast<int>(c.input), static_cast<int>(c.inverse), static_cast<int>(c.inverse_operand),
          static_cast<int>(c.beta_in_T), static_cast<int>(c.accumulator), static_cast<int>(c.exponential),
          static_cast<int>(c.scan), static_cast<int>(c.norm), static_cast<int>(c.scale_in_P),
          static_cast<int>(c.reads_old_state)}) {
      promise += std::to_string(setting) + " ";
    }
    EXPECT_TRUE(seen.insert(promise).second) << c.name;
  }
}

TEST(Contracts, NamesSayTheirFormats) {
  for (const NamedContract& row : contracts()) {
    const Contract& c = row.contract;
    const bool bf16 = c.name.rfind("bf16", 0) == 0;
    const bool fp16 = c.name.rfind("fp16", 0) == 0;
    EXPECT_EQ(c.input, bf16 ? Format::bf16 : fp16 ? Format::fp16 : Format::fp32) << c.name;
    // Products of three tf32 parts round no operand, so there is no twin.
    EXPECT_EQ(low_precision(c), c.name.rfind("fp32", 0) != 0 && c.name != "tf32x3") << c.name;
    EXPECT_EQ(low_precision_state(c), c.name.find("_state") != std::string::npos) << c.name;
  }
}

TEST(LowPrecision, EveryRoundingPointCounts) {
  EXPECT_FALSE(low_precision(Contract{}));
  for (Format Contract::*point : kRoundingPoints) {
    for (const Format format : kLowPrecision) {
      Contract c;
      c.*point = format;
      EXPECT_TRUE(low_precision(c));
      EXPECT_EQ(low_precision_state(c), point == &Contract::state);
    }
    for (const Format format : {Format::none, Format::fp32, Format::fp64}) {
      Contract c;
      c.*point = format;
      EXPECT_FALSE(low_precision(c));
    }
  }
}

TEST(RecurrentContract, KeepsWhatTheRecurrentFormReads) {
  for (const NamedContract& row : contracts()) {
    const Contract& c = row.contract;
    const Contract r = recurrent_contract(c);
    EXPECT_EQ(r.name, c.name);
    EXPECT_EQ(r.input, c.input);
    EXPECT_EQ(r.state, c.state);
    EXPECT_EQ(r.output, c.output);
    EXPECT_EQ(r.exponential, c.exponential);
    EXPECT_EQ(r.accumulator, Accumulator::fp32);
    EXPECT_EQ(r.norm, c.norm);
    EXPECT_EQ(r.reads_old_state, c.reads_old_state);
    for (Format Contract::*point : kRoundingPoints) {
      if (point == &Contract::qk || point == &Contract::state || point == &Contract::output) continue;
      EXPECT_EQ(r.*point, Contract{}.*point) << c.name;
    }
    EXPECT_NE(r.qk, Format::tf32) << "a recurrent kernel feeds no matrix unit";
    const bool stored = c.input != Format::fp32 && c.norm == Norm::operand;
    EXPECT_EQ(recurrent_contract(with_l2norm(c)).qk, stored ? c.input : Format::fp32) << c.name;
  }
}

TEST(WithL2norm, RoundsQueriesAndKeysAgainWhereInputsHave16Bits) {
  for (const NamedContract& row : contracts()) {
    const Contract& c = row.contract;
    const Contract n = with_l2norm(c);
    const bool sixteen = c.input == Format::bf16 || c.input == Format::fp16;
    const bool stored = sixteen && c.norm == Norm::operand;
    EXPECT_EQ(n.qk, stored ? c.input : c.qk) << c.name;
    EXPECT_EQ(n.T, c.T) << c.name;
    EXPECT_EQ(n.output, c.output) << c.name;
  }
}

TEST(SumsOnly, KeepsTheSumsAndNoRounding) {
  for (const NamedContract& row : contracts()) {
    const Contract& c = row.contract;
    const Contract s = sums_only(c);
    EXPECT_FALSE(low_precision(s)) << c.name;
    EXPECT_EQ(s.accumulator, c.accumulator) << c.name;
    EXPECT_EQ(s.exponential, c.exponential) << c.name;
    EXPECT_EQ(s.scan, c.scan) << c.name;
    EXPECT_EQ(s.inverse, Inverse::substitution) << c.name;
    // Points that are not roundings stay: the order in which the sums are formed.
    EXPECT_EQ(s.residual == Format::none, c.residual == Format::none) << c.name;
    EXPECT_EQ(s.norm, c.norm) << c.name;
    EXPECT_EQ(s.scale_in_P, c.scale_in_P) << c.name;
    EXPECT_EQ(s.reads_old_state, c.reads_old_state) << c.name;
  }
}

}  // namespace
}  // namespace samestate
