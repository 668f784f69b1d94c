#include "optimized/cuda/delta/ranks/exchange.cuh"

#include <dlfcn.h>

#include <numeric>
#include <vector>

#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda::ranks {
namespace {

constexpr int kFloat32 =
    7;  ///< ncclFloat32: enumerations travel as the integers that they are in the C interface

template <class Function>
bool find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Exchange::Library {
  int (*version)(int*) = nullptr;
  const char* (*text)(int) = nullptr;
  int (*create_all)(void**, int, const int*) = nullptr;
  int (*begin)() = nullptr;
  int (*end)() = nullptr;
  int (*send)(const void*, std::size_t, int, int, void*, cudaStream_t) = nullptr;
  int (*receive)(void*, std::size_t, int, int, void*, cudaStream_t) = nullptr;
  std::vector<void*> communicators;

  void succeed(int status, const char* call) const {
    if (status != 0) throw Error(std::string(call) + ": " + text(status) + "; NCCL_DEBUG=INFO says more");
  }
};

Exchange& Exchange::of_process() {
  static Exchange* const exchange = new Exchange;
  return *exchange;
}

Exchange::Exchange() {
  int seen = 0;
  check(cudaGetDeviceCount(&seen), "cudaGetDeviceCount");
  if (seen < 2) {
    name_ = "one device";
    return;
  }
  void* handle = nullptr;
  for (const char* file : {"libnccl.so.2", "libnccl.so"}) {
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
  }
  if (!handle) {
    name_ = "one device of " + std::to_string(seen) + ": no libnccl.so.2 among the libraries of this system";
    return;
  }
  auto* const found = new Library;
  if (!find(handle, found->version, "ncclGetVersion") || !find(handle, found->text, "ncclGetErrorString") ||
      !find(handle, found->create_all, "ncclCommInitAll") || !find(handle, found->begin, "ncclGroupStart") ||
      !find(handle, found->end, "ncclGroupEnd") || !find(handle, found->send, "ncclSend") ||
      !find(handle, found->receive, "ncclRecv")) {
    name_ = "one device of " + std::to_string(seen) + ": this NCCL lacks a function that is needed";
    return;
  }
  std::vector<int> numbers(static_cast<std::size_t>(seen));
  std::iota(numbers.begin(), numbers.end(), 0);
  found->communicators.resize(numbers.size());
  found->succeed(found->create_all(found->communicators.data(), seen, numbers.data()), "ncclCommInitAll");
  int version = 0;
  found->succeed(found->version(&version), "ncclGetVersion");
  library_ = found;
  devices_ = numbers.size();
  name_ = "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
          std::to_string(version % 100);
}

void Exchange::begin() const { library_->succeed(library_->begin(), "ncclGroupStart"); }
void Exchange::end() const { library_->succeed(library_->end(), "ncclGroupEnd"); }

void Exchange::send(const float* data, std::size_t count, std::size_t from, std::size_t to,
                    cudaStream_t stream) const {
  library_->succeed(
      library_->send(data, count, kFloat32, static_cast<int>(to), library_->communicators[from], stream),
      "ncclSend");
}

void Exchange::receive(float* data, std::size_t count, std::size_t to, std::size_t from,
                       cudaStream_t stream) const {
  library_->succeed(
      library_->receive(data, count, kFloat32, static_cast<int>(from), library_->communicators[to], stream),
      "ncclRecv");
}

}  // namespace samestate::cuda::ranks
