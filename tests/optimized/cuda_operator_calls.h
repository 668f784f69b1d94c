#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <new>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "optimized/cuda/host/tensors.h"
#include "tests/optimized/contracts.h"

/// The operands and comparisons that tests of the CUDA kernels of named tensors share.
namespace samestate::testing {

using Values = std::vector<float>;

/// Numbers of a format, drawn.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  template <class Operand>
  Values values(std::int64_t count) {
    Values out(static_cast<std::size_t>(count));
    for (float& x : out) x = cuda::loaded(cuda::stored<Operand>(normal_(random_)));
    return out;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

/// Copies to an address aligned to 16 bytes with nothing after it, so that a sanitizer sees reads beyond the
/// end.
template <class Operand>
class Aligned {
 public:
  explicit Aligned(const Values& values) : size_(values.size()), data_(allocate(values.size())) {
    for (std::size_t i = 0; i < size_; ++i) data_[i] = cuda::stored<Operand>(values[i]);
  }
  explicit Aligned(std::size_t size) : Aligned(Values(size, NAN)) {}
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  ~Aligned() { ::operator delete (data_, std::align_val_t{16}); }
  [[nodiscard]] Operand* data() const { return data_; }
  [[nodiscard]] Values values() const {
    Values out;
    for (std::size_t i = 0; i < size_; ++i) out.push_back(cuda::loaded(data_[i]));
    return out;
  }

 private:
  static Operand* allocate(std::size_t size) {
    return static_cast<Operand*>(::operator new (size * sizeof(Operand), std::align_val_t{16}));
  }
  std::size_t size_;
  Operand* data_;
};

/// Both round once to the format, what they round is a few units of fp32 apart: the next number of bf16 at most.
template <class Operand>
void expect_near(const Values& actual, const Values& expected, const std::string& what,
                 float of_fp32 = 2e-6F) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const float relative = std::is_same_v<Operand, float> ? of_fp32 : 0x1.02p-7F;
  int other = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_LE(std::fabs(actual[i] - expected[i]), relative * std::fabs(expected[i]) + 1e-7F)
        << what << ' ' << i;
    other += actual[i] != expected[i] ? 1 : 0;
  }
  if (!std::is_same_v<Operand, float>) {
    EXPECT_LE(other, 1 + static_cast<int>(actual.size()) / 100) << what;
  }
}

/// Sums that cancel, of numbers near one; a number in 16 bits may have turned the other way.
template <class Operand>
void expect_close(const Values& actual, const Values& expected, const std::string& what) {
  const float relative = sizeof(Operand) == 4 ? 2e-5F : 0x1p-7F;
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], relative * (1.0F + std::fabs(expected[i]))) << what << ' ' << i;
}

template <class Operand>
[[nodiscard]] Contract contract_of() {
  if constexpr (std::is_same_v<Operand, float>) return {};
  return bf16();
}

}  // namespace samestate::testing
