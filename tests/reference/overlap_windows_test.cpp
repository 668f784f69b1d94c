#include "reference/overlap_windows.h"

#include <gtest/gtest.h>

#include <map>

namespace samestate {
namespace {

/// Multiplicity -> how many channels have it.
std::map<Index, Index> histogram(const OverlapWindows& w) {
  std::map<Index, Index> channels;
  for (Index c = 0; c < w.channels; ++c) ++channels[w.multiplicity(c)];
  return channels;
}

std::string message_of(Index d, Index N, Index O) {
  try {
    (void)overlap_windows(d, N, O);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// The table of EQUATIONS 7.5.
TEST(OverlapWindows, HasTheWidthsAndMultiplicitiesOfTheTable) {
  struct Row {
    Index d, N, O, w, s;
    std::map<Index, Index> channels;
  };
  const Row rows[] = {
      {256, 2, 64, 160, 96, {{1, 192}, {2, 64}}},
      {256, 3, 64, 128, 64, {{1, 128}, {2, 128}}},
      {256, 4, 64, 112, 48, {{1, 96}, {2, 128}, {3, 32}}},
      {256, 6, 64, 96, 32, {{1, 64}, {2, 64}, {3, 128}}},
      {256, 8, 128, 144, 16, {{1, 32}, {2, 32}, {3, 32}, {4, 32}, {5, 32}, {6, 32}, {7, 32}, {8, 32}}},
      {8, 2, 2, 5, 3, {{1, 6}, {2, 2}}},
      {8, 3, 2, 4, 2, {{1, 4}, {2, 4}}},
  };
  for (const Row& row : rows) {
    const OverlapWindows w = overlap_windows(row.d, row.N, row.O);
    EXPECT_EQ(w.width, row.w) << row.d << " " << row.N << " " << row.O;
    EXPECT_EQ(w.stride, row.s);
    EXPECT_EQ(histogram(w), row.channels) << row.d << " " << row.N << " " << row.O;
  }
}

// Legal iff N divides d - O and 0 <= O < d; then the windows end at d and m(c) counts those that hold c.
TEST(OverlapWindows, AcceptsExactlyTheSplitsThatCover) {
  for (Index d = 1; d <= 12; ++d) {
    for (Index N = 2; N <= 13; ++N) {
      for (Index O = -1; O <= d; ++O) {
        if (O < 0 || O >= d || (d - O) % N != 0) {
          EXPECT_THROW((void)overlap_windows(d, N, O), Error) << d << " " << N << " " << O;
          continue;
        }
        const OverlapWindows w = overlap_windows(d, N, O);
        EXPECT_EQ(w.begin(N - 1) + w.width, d);
        EXPECT_GT(w.stride, 0);
        Index sum = 0;
        for (Index c = 0; c < d; ++c) {
          Index holding = 0;
          for (Index n = 0; n < N; ++n) holding += w.begin(n) <= c && c < w.begin(n) + w.width ? 1 : 0;
          EXPECT_EQ(w.multiplicity(c), holding) << d << " " << N << " " << O << " channel " << c;
          sum += holding;
        }
        EXPECT_EQ(sum, d + (N - 1) * O);
      }
    }
  }
}

TEST(OverlapWindows, RefusesWithTheValueAndTheRemedy) {
  // Floored this would be w = 128, s = 63, and two channels in no window.
  EXPECT_EQ(message_of(256, 3, 65),
            "overlap_windows: 3 windows of 256 channels with overlap 65: the number of windows must divide "
            "channels - overlap = 191");
  EXPECT_NE(message_of(8, 2, 8).find("must lie in 0..7"), std::string::npos);
  EXPECT_NE(message_of(8, 2, -1).find("must lie in 0..7"), std::string::npos);
  EXPECT_NE(message_of(8, 0, 2).find("at least 1"), std::string::npos);
  EXPECT_NE(message_of(0, 2, 0).find("at least 1"), std::string::npos);
}

TEST(OverlapWindows, OneWindowIgnoresTheOverlap) {
  for (const Index O : {-3, 0, 5, 8, 300}) {
    const OverlapWindows w = overlap_windows(8, 1, O);
    EXPECT_EQ(w.width, 8);
    EXPECT_EQ(w.multiplicity(7), 1);
  }
}

TEST(OverlapWindows, SlicesAndAddsAgain) {
  const OverlapWindows w = overlap_windows(4, 2, 2);
  Matrix<double> x(1, 4);
  x << 1, 2, 3, 4;
  const Matrix<double> first = w.slice(x, 0);
  const Matrix<double> second = w.slice(x, 1);
  EXPECT_EQ(first, (Matrix<double>(1, 3) << 1, 2, 3).finished());
  EXPECT_EQ(second, (Matrix<double>(1, 3) << 2, 3, 4).finished());
  EXPECT_EQ(w.overlap_add<double>({first, second}), (Matrix<double>(1, 4) << 1, 4, 6, 4).finished());
  EXPECT_EQ(w.slice(Matrix<double>(0, 4), 1).rows(), 0);
}

TEST(OverlapWindows, RefusesOtherChannelsAndParts) {
  const OverlapWindows w = overlap_windows(4, 2, 2);
  const Matrix<double> x = Matrix<double>::Ones(1, 4);
  EXPECT_THROW((void)w.slice(x, 2), Error);
  EXPECT_THROW((void)w.slice(x, -1), Error);
  EXPECT_THROW((void)w.slice(Matrix<double>(1, 5), 0), Error);
  const Matrix<double> part = Matrix<double>::Ones(1, 3);
  EXPECT_THROW((void)w.overlap_add<double>({part}), Error);
  EXPECT_THROW((void)w.overlap_add<double>({part, x}), Error);
  EXPECT_THROW((void)w.overlap_add<double>({part, Matrix<double>::Ones(2, 3)}), Error);
}

}  // namespace
}  // namespace samestate
