#include "harness/run/float_environment.h"

#include <array>
#include <string_view>
#include <vector>

namespace samestate {
namespace {

struct Field {
  std::uint64_t mask;
  std::array<std::string_view, 4> values;  ///< indexed by the field's bits; the default has no word
};

#if defined(__x86_64__)

constexpr std::uint64_t kVectorDefault = 0x1f80;  // all exceptions masked, no flag set
constexpr std::uint64_t kVectorControl = 0xffc0;  // excludes the lowest six bits, which are sticky flags
constexpr std::uint16_t kX87Default = 0x37f;
constexpr std::uint16_t kX87Control = 0x0f3f;
constexpr std::array<Field, 4> kVectorFields{{
    {0x6000, {"", "rounding toward minus infinity", "rounding toward plus infinity", "rounding toward zero"}},
    {0x8000, {"", "flush-to-zero (FTZ) on"}},
    {0x0040, {"", "denormals-are-zero (DAZ) on"}},
    {0x1f80, {}},
}};
constexpr std::array<Field, 2> kX87Fields{{
    {0x0c00,
     {"", "x87 rounding toward minus infinity", "x87 rounding toward plus infinity",
      "x87 rounding toward zero"}},
    {0x0300, {"x87 precision of 24 bits", "x87 precision reserved", "x87 precision of 53 bits", ""}},
}};

std::uint64_t vector_bits() {
  std::uint32_t bits = 0;
  asm volatile("stmxcsr %0" : "=m"(bits)::"memory");
  return bits;
}
void set_vector_bits(std::uint64_t bits) {
  const auto narrow = static_cast<std::uint32_t>(bits);
  asm volatile("ldmxcsr %0" ::"m"(narrow) : "memory");
}
std::uint16_t x87_bits() {
  std::uint16_t bits = 0;
  asm volatile("fnstcw %0" : "=m"(bits)::"memory");
  return bits;
}
void set_x87_bits(std::uint16_t bits) { asm volatile("fldcw %0" ::"m"(bits) : "memory"); }

/// A set exception flag raises its signal at the next x87 instruction once its mask is removed.
void clear_x87_flags() { asm volatile("fnclex" ::: "memory"); }

#elif defined(__aarch64__)

constexpr std::uint64_t kVectorDefault = 0;
constexpr std::uint64_t kVectorControl = 0x07c89f00;  // AHP, DN, FZ, RMode, FZ16, traps
constexpr std::uint16_t kX87Default = 0, kX87Control = 0;
constexpr std::array<Field, 3> kVectorFields{{
    {0x00c00000,
     {"", "rounding toward plus infinity", "rounding toward minus infinity", "rounding toward zero"}},
    {0x01000000, {"", "flush-to-zero (FZ) on"}},
    {0x00009f00, {}},
}};
constexpr std::array<Field, 0> kX87Fields{};

std::uint64_t vector_bits() {
  std::uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits)::"memory");
  return bits;
}
void set_vector_bits(std::uint64_t bits) { asm volatile("msr fpcr, %0" ::"r"(bits) : "memory"); }
std::uint16_t x87_bits() { return 0; }
void set_x87_bits(std::uint16_t) {}
void clear_x87_flags() {}

#else
#error "float_environment.cpp knows x86-64 and AArch64: add the control register of this processor"
#endif

/// Adds the words for the fields that differ.
template <std::size_t N>
void tell(std::uint64_t now, std::uint64_t before, const std::array<Field, N>& fields,
          std::vector<std::string_view>& words) {
  for (const Field& field : fields) {
    if (((now ^ before) & field.mask) == 0) continue;
    const std::uint64_t lowest = field.mask & (~field.mask + 1);
    const std::uint64_t value = (now & field.mask) / lowest;
    const std::string_view word = value < field.values.size() ? field.values[value] : "";
    words.push_back(word.empty() ? "exceptions unmasked" : word);
  }
}

}  // namespace

FloatEnvironment::FloatEnvironment() : vector_(vector_bits()), x87_(x87_bits()) {
  set_vector_bits(kVectorDefault);
  set_x87_bits(kX87Default);
}

FloatEnvironment::~FloatEnvironment() {
  clear_x87_flags();
  set_vector_bits(vector_);
  set_x87_bits(x87_);
}

std::string FloatEnvironment::changed() {
  const std::uint64_t vector = vector_bits() & kVectorControl;
  const auto x87 = static_cast<std::uint16_t>(x87_bits() & kX87Control);
  std::vector<std::string_view> words;
  tell(vector, kVectorDefault & kVectorControl, kVectorFields, words);
  tell(x87, kX87Default & kX87Control, kX87Fields, words);
  constexpr std::uint16_t kX87Masks = 0x3f;
  if (((x87 ^ kX87Default) & kX87Control & kX87Masks) != 0) words.emplace_back("x87 exceptions unmasked");
  if (words.empty() && vector != (kVectorDefault & kVectorControl))
    words.emplace_back("another control bit changed");
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

void require_unchanged() {
  const std::string changed = FloatEnvironment::changed();
  if (changed.empty()) return;
  throw ChangedEnvironment(
      "the kernel changed the floating-point environment of its caller and did not put it back: " + changed +
      "; save the control register when a call begins and restore it before the call returns");
}

}  // namespace samestate
