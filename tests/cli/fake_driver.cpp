// Stands in for libcuda.so.1 where there is no device: after a launch every call fails in this process, as
// after an illegal memory access, and so does every call in a process that was forked after it was started.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/cli/cuda_driver.h"

namespace {

using namespace samestate::driver;

pid_t started = 0;
bool broken = false;

int status() { return started != ::getpid() ? kNotInitialized : broken ? kIllegalAddress : kSuccess; }

void* const kSomething = &started;
thread_local void* current = nullptr;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  if (started == 0) started = ::getpid();
  return status();
}
int cuDeviceGet(int* device, int) {
  *device = 0;
  return status();
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = kSomething;
  return status();
}
int cuCtxSetCurrent(void* context) {
  current = context;
  return status();
}
int cuCtxGetCurrent(void** context) {
  *context = current;
  return started == 0 ? kNotInitialized : kSuccess;
}
int cuModuleLoadData(void** module, const void*) {
  *module = kSomething;
  return status();
}
int cuModuleGetFunction(void** function, void*, const char*) {
  *function = kSomething;
  return status();
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**) {
  const int before = status();
  broken = true;
  return before;
}
int cuMemAlloc_v2(unsigned long long* there, std::size_t bytes) {
  if (status() == kSuccess) *there = reinterpret_cast<unsigned long long>(std::malloc(bytes));
  return status();
}
int cuMemFree_v2(unsigned long long there) {
  std::free(reinterpret_cast<void*>(there));
  return status();
}
int cuMemcpyHtoD_v2(unsigned long long there, const void* here, std::size_t bytes) {
  if (status() == kSuccess) std::memcpy(reinterpret_cast<void*>(there), here, bytes);
  return status();
}
int cuMemcpyDtoH_v2(void* here, unsigned long long there, std::size_t bytes) {
  if (status() == kSuccess) std::memcpy(here, reinterpret_cast<void*>(there), bytes);
  return status();
}
// Of a thread without a context compute-sanitizer reports an error: here it is one that nobody overlooks.
int cuCtxSynchronize() {
  if (current == nullptr) std::abort();
  return status();
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_NOT_INITIALIZED";
  return kSuccess;
}

}  // extern "C"
