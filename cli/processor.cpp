// The rest of the command is compiled for the instructions of SAMESTATE_MARCH, and on a processor without
// them it would end with SIGILL somewhere. This file is compiled for every x86-64 (CMakeLists.txt) and checks
// before any code of the others runs.
#include <unistd.h>

#include <cstring>

#ifdef SAMESTATE_FOR_X86_64_V3
namespace {

constexpr int kNoFirst = 101;  // the first priority that programs may use; initialisers of other files
                               // without a priority come later
constexpr int kUsage = 2;

const char* missing() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
  if (!__builtin_cpu_supports("fma")) return "FMA";
  if (!__builtin_cpu_supports("bmi")) return "BMI1";
  if (!__builtin_cpu_supports("bmi2")) return "BMI2";
  if (!__builtin_cpu_supports("f16c")) return "F16C";
  if (!__builtin_cpu_supports("lzcnt")) return "LZCNT";
  return __builtin_cpu_supports("movbe") ? nullptr : "MOVBE";
}

__attribute__((constructor(kNoFirst))) void require_instructions() {
  const char* const what = missing();
  if (what == nullptr) return;
  const char* const parts[] = {"samestate: this processor has no ", what,
                               ", for which the command was built (x86-64-v3); build it here with "
                               "cmake --preset release -DSAMESTATE_MARCH=\n"};
  for (const char* part : parts) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(kUsage);
}

}  // namespace
#endif
