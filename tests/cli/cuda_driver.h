#pragma once

#include <cstddef>

/// The few functions of the CUDA driver API that the tests call, in C linkage; values are those of CUresult.
namespace samestate::driver {

inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNotInitialized = 3;
inline constexpr int kNoDevice = 100;
inline constexpr int kIllegalAddress = 700;

using Init = int (*)(unsigned);
using DeviceCount = int (*)(int*);
using DeviceGet = int (*)(int*, int);
using ContextRetain = int (*)(void**, int);
using ContextSet = int (*)(void*);
using ModuleLoad = int (*)(void**, const void*);
using FunctionGet = int (*)(void**, void*, const char*);
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                       void**, void**);
using Allocate = int (*)(unsigned long long*, std::size_t);
using Free = int (*)(unsigned long long);
using ToDevice = int (*)(unsigned long long, const void*, std::size_t);
using ToHost = int (*)(void*, unsigned long long, std::size_t);
using Synchronize = int (*)();

}  // namespace samestate::driver
