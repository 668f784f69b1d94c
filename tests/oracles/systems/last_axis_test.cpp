#include "oracles/systems/last_axis.h"

#include <gtest/gtest.h>

#include <string>

namespace samestate {
namespace {

struct Known {
  const char* system;
  const char* output;
  const char* text;  ///< text for column 5
  Location at;       ///< place of row 2, column 5
};

/// The sizes that a row has of its own.
Call standard(const Operator& row) {
  Call call;
  call.form = row.forms.front().name;
  call.tokens = 7;
  call.chunk = 2;
  for (const Parameter& p : row.parameters) call.parameters.emplace(p.name, p.standard);
  return call;
}

TEST(LastAxis, IsHeadsOrExpertsOrColumns) {
  const Known known[] = {
      {"linear_attention_normalised", "o", "head 1, channel 1", {-1, 1, 2, 1}},
      {"linear_attention_normalised", "S", "column 5", {-1, -1, 2, 5}},
      {"gated_delta_net", "core", "head 1, channel 1", {-1, 1, 2, 1}},
      {"gated_delta_net", "convolution", "column 5", {-1, -1, 2, 5}},
      {"activation_gates", "beta", "head 5", {-1, 5, 2, -1}},
      {"expert_router", "weights", "expert 5", {-1, -1, 2, 5}},
      {"mixture_of_experts", "y", "column 5", {-1, -1, 2, 5}},
  };
  for (const Known& k : known) {
    const Operator& row = *find_operator(k.system);
    Call call = standard(row);
    if (call.parameters.contains("dv")) call.parameters["dv"] = 4;
    const LastAxis axis = last_axis(row, call, k.output);
    EXPECT_EQ(axis.text(5), k.text) << k.system;
    const Location at = axis.place(2, 5);
    EXPECT_EQ(at.sequence, k.at.sequence) << k.system << " " << k.output;
    EXPECT_EQ(at.head, k.at.head) << k.system << " " << k.output;
    EXPECT_EQ(at.token, k.at.token) << k.system << " " << k.output;
    EXPECT_EQ(at.channel, k.at.channel) << k.system << " " << k.output;
    EXPECT_EQ(axis.place(2, -1).head, -1) << "a row";
  }
  EXPECT_EQ(
      last_axis(*find_operator("expert_router"), standard(*find_operator("expert_router")), "none").word,
      "column");
}

// An axis that doubles with the number of heads belongs to the heads, in every row of the table, and has as
// many as the size says.
TEST(LastAxis, AgreesWithTheSizesOfEveryRow) {
  for (const Operator& row : operators()) {
    const Call call = standard(row);
    for (const TensorSpec& spec : row.signature(call).outputs) {
      const LastAxis axis = last_axis(row, call, spec.name);
      RecordProperty(std::string(row.name) + "." + spec.name,
                     axis.text(5) + (axis.tokens ? " by token" : ""));
      if (axis.width > 0) {
        EXPECT_EQ(axis.word, "column") << row.name << " " << spec.name;
        EXPECT_EQ(spec.columns() % axis.width, 0) << row.name << " " << spec.name;
      }
      if (axis.tokens) {
        EXPECT_EQ(spec.rows(), call.tokens) << row.name << " " << spec.name;
      }
    }
  }
}

}  // namespace
}  // namespace samestate
