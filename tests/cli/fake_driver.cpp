// Stands in for libcuda.so.1 on a machine without a device (memory and streams: fake_memory.cpp). After a
// launch every call fails in this process, as after an illegal memory access, and so does every call in a
// process that was forked after it was started. FAKE_DEVICES is the number of its devices (1 by default), of
// which CUDA_VISIBLE_DEVICES shows some, as the driver does. Devices for which the folder FAKE_LOST has a
// file named by their number are gone for processes that start from then on.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cuda_driver.h"
#include "tests/cli/fake_driver.h"

namespace {

using namespace samestate::driver;

pid_t started = 0;
bool broken = false;
std::vector<int> shown;  ///< devices, in the order of this process

std::string uuid_text(int device) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-fafafafa-fafa-fafa-fafa-fafafafafa%02x",
                static_cast<unsigned>(device));
  return text;
}

bool is_lost(int device) {
  const char* const folder = std::getenv("FAKE_LOST");
  return folder != nullptr &&
         ::access((std::string(folder) + "/" + std::to_string(device)).c_str(), F_OK) == 0;
}

std::vector<int> devices() {
  const char* const count = std::getenv("FAKE_DEVICES");
  std::vector<int> all;
  for (int i = 0; i < (count != nullptr ? std::atoi(count) : 1); ++i) {
    if (!is_lost(i)) all.push_back(i);
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return all;
  std::vector<int> out;
  std::istringstream entries(visible);
  for (std::string one; std::getline(entries, one, ',');) {
    int found = -1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (one == std::to_string(i) || one == uuid_text(all[i])) found = all[i];
    }
    if (found < 0) break;  // of a list none behind the first that is no device
    out.push_back(found);
  }
  return out;
}

void* const kSomething = &started;
thread_local void* current = nullptr;

}  // namespace

namespace samestate::fake {

int status() {
  return started != ::getpid() ? kNotInitialized
         : shown.empty()       ? kNoDevice
         : broken              ? kIllegalAddress
                               : kSuccess;
}

void break_context() { broken = true; }

}  // namespace samestate::fake

using samestate::fake::status;

extern "C" {

int cuInit(unsigned) {
  if (started == 0) {
    started = ::getpid();
    shown = devices();
  }
  return status();
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(shown.size());
  return status();
}
int cuDeviceGet(int* device, int number) {
  if (number >= static_cast<int>(shown.size())) return kNoDevice;
  *device = shown[static_cast<std::size_t>(number)];
  return status();
}
int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake %d", device);
  return kSuccess;
}
int cuDeviceGetPCIBusId(char* name, int size, int device) {
  std::snprintf(name, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
  return kSuccess;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0xfa, 15);
  uuid[15] = static_cast<unsigned char>(device);
  return kSuccess;
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
// compute-sanitizer reports an error for a thread without a context; here the error cannot be overlooked.
int cuCtxSynchronize() {
  if (current == nullptr) std::abort();
  samestate::fake::run_all_streams();
  return status();
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_NOT_INITIALIZED";
  return kSuccess;
}

}  // extern "C"
