#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "oracles/rounding.h"
#include "tests/harness/systems/other_kernels.h"

/// Flash decoding in bf16: keys in independent parts of whole blocks, a maximum of its own each, merged by e^(m_i - m).
namespace samestate {
namespace {

enum class Merge { right, first_maximum, sums_as_they_are, last_part_lost };

struct Split {
  Index block = 16;
  Index parts = 4;
  bool largest_of_part = false;  ///< weights under the largest score of their part, not of its blocks so far
  Merge merge = Merge::right;
};

float bf16(float x) { return round_to(x, Format::bf16); }

/// One query against the keys that it sees, in fp32 but for the weights.
std::vector<float> attend(const std::vector<float>& scores, const std::vector<const float*>& values, Index dv,
                          Index keys, const Split& split) {
  struct Part {
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0.0F;
    std::vector<float> o;
  };
  const Index blocks = (keys + split.block - 1) / split.block;
  const Index length = (blocks + split.parts - 1) / split.parts * split.block;
  const auto seen = std::ssize(scores);
  std::vector<Part> parts;
  for (Index begin = 0; begin < seen; begin += length) {
    Part part{.o = std::vector<float>(static_cast<std::size_t>(dv), 0.0F)};
    const Index end = std::min(seen, begin + length);
    const Index step = split.largest_of_part ? length : split.block;
    for (Index block = begin; block < end; block += step) {
      const Index last = std::min(end, block + step);
      const float before = part.maximum;
      for (Index s = block; s < last; ++s)
        part.maximum = std::max(part.maximum, scores[static_cast<std::size_t>(s)]);
      const float factor = block == begin ? 0.0F : std::exp(before - part.maximum);
      part.sum *= factor;
      for (float& x : part.o) x *= factor;
      for (Index s = block; s < last; ++s) {
        const float weight = std::exp(scores[static_cast<std::size_t>(s)] - part.maximum);
        part.sum += weight;
        for (Index c = 0; c < dv; ++c)
          part.o[static_cast<std::size_t>(c)] += bf16(weight) * values[static_cast<std::size_t>(s)][c];
      }
    }
    parts.push_back(std::move(part));
  }
  if (split.merge == Merge::last_part_lost && parts.size() > 1) parts.pop_back();
  float maximum = parts.front().maximum;
  for (const Part& part : parts) maximum = std::max(maximum, part.maximum);
  if (split.merge == Merge::first_maximum) maximum = parts.front().maximum;
  float sum = 0.0F;
  std::vector<float> o(static_cast<std::size_t>(dv), 0.0F);
  for (const Part& part : parts) {
    const float factor = std::exp(part.maximum - maximum);
    // The maximum of the wrong part: its own sum is rescaled as the first part's.
    sum += split.merge == Merge::sums_as_they_are ? part.sum : factor * part.sum;
    const float weighed = split.merge == Merge::first_maximum ? 1.0F : factor;
    for (std::size_t c = 0; c < o.size(); ++c) o[c] += weighed * part.o[c];
  }
  for (float& x : o) x = bf16(x / sum);
  return o;
}

Outcome run_split(const OperatorArguments& call, const Split& split) {
  const auto &q = call.input("q"), &k = call.input("k"), &v = call.input("v");
  const auto& o = call.output("o");
  const Index H = call.parameter("H"), Hkv = call.parameter("Hkv"), d = call.parameter("d"),
              dv = call.parameter("dv"), keys = k.extent(1);
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  for (Index b = 0; b < call.batch; ++b) {
    for (Index t = 0; t < call.tokens; ++t) {
      for (Index h = 0; h < H; ++h) {
        const Index kh = h / (H / Hkv);
        std::vector<float> scores;
        std::vector<const float*> values;
        for (Index s = 0; s <= keys - call.tokens + t; ++s) {
          float sum = 0.0F;
          for (Index c = 0; c < d; ++c)
            sum +=
                q.data[((b * call.tokens + t) * H + h) * d + c] * k.data[((b * keys + s) * Hkv + kh) * d + c];
          scores.push_back(sum * scale);
          values.push_back(v.data + ((b * keys + s) * Hkv + kh) * dv);
        }
        const std::vector<float> out = attend(scores, values, dv, keys, split);
        std::copy(out.begin(), out.end(), o.data + ((b * call.tokens + t) * H + h) * dv);
      }
    }
  }
  return {};
}

Judgement judged_split(const std::string& line, const Split& split) {
  return judged_kernel(line, "naive", [&](const OperatorArguments& call) { return run_split(call, split); });
}

const std::string kDecode =
    "v1 softmax_attention form=decode prefill=127 B=2 T=128 H=8 d=2 dv=4 contract=bf16 seed=0x1e";

// 19.9 times the limit of the twin that knew no parts.
TEST(SplitKeys, ARightKernelPasses) {
  for (const Index parts : {2, 4, 8}) {
    for (const bool largest : {false, true}) {
      const Judgement j = judged_split(kDecode, {16, parts, largest});
      EXPECT_EQ(j.verdict, Verdict::pass) << parts << ": " << j.gate << " " << j.ratio << " " << j.reason;
    }
  }
}

TEST(SplitKeys, FaultsOfTheMergeDie) {
  for (const Merge fault : {Merge::first_maximum, Merge::sums_as_they_are, Merge::last_part_lost}) {
    const Judgement j = judged_split(kDecode, {16, 4, false, fault});
    EXPECT_EQ(j.verdict, Verdict::fail) << static_cast<int>(fault) << ": " << j.reason;
  }
}

std::string drawn_line(std::mt19937& engine) {
  const auto any = [&](int least, int most) {
    return std::to_string(std::uniform_int_distribution<int>(least, most)(engine));
  };
  const std::string T = any(1, 160);
  const bool decode = any(0, 2) != "0";
  const char* const regimes[] = {"normal", "large", "tiny", "spiky", "mixed_scales", "repeated"};
  const std::string heads = any(1, 3);
  std::string line = "v1 softmax_attention contract=bf16 B=1 T=" + T + " H=" + heads + " Hkv=" + heads +
                     " d=" + any(1, 12) + " dv=" + any(1, 9) + " regime=" + regimes[std::stoi(any(0, 5))] +
                     " seed=" + any(1, 1 << 30);
  if (decode && T != "1")
    line += " form=decode prefill=" + std::to_string(std::max(1, std::stoi(T) - std::stoi(any(1, 3))));
  else
    line += " form=naive";
  return line;
}

void expect_all_pass(int cases) {
  std::mt19937 engine(7);
  for (int i = 0; i < cases; ++i) {
    const std::string line = drawn_line(engine);
    const Split split{Index{16} << (i % 3), Index{2} << (i / 3 % 3), i % 2 == 0};
    const Judgement j = judged_split(line, split);
    EXPECT_NE(j.verdict, Verdict::fail) << "block " << split.block << " parts " << split.parts << ": " << line
                                        << ": " << j.gate << " " << j.ratio << " " << j.reason;
  }
}

// For a long call some tokens are judged, and its parts are those of all its keys.
TEST(SplitKeys, OfALongCallToo) {
  for (const char* form : {"form=naive", "form=decode prefill=697"}) {
    const std::string line =
        std::string("v1 softmax_attention contract=bf16 T=700 H=2 Hkv=1 d=8 dv=8 seed=0x5 ") + form;
    const Judgement right = judged_split(line, {32, 4, true});
    EXPECT_EQ(right.verdict, Verdict::pass) << form << ": " << right.ratio << " " << right.reason;
    EXPECT_NE(right.held_which, "") << "all were judged_split";
    EXPECT_EQ(judged_split(line, {32, 4, true, Merge::last_part_lost}).verdict, Verdict::fail) << form;
  }
}

TEST(SplitKeys, RightKernelsOfDrawnCases) { expect_all_pass(60); }
TEST(LongSplitKeys, RightKernelsOfManyDrawnCases) { expect_all_pass(575); }

}  // namespace
}  // namespace samestate
