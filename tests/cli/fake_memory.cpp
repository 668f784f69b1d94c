// Memory and streams of the stand-in for libcuda.so.1. Who reads or writes device memory on the host dies of it, and what is
// put on a stream is done when somebody waits for that stream or for all of the device: the latest that CUDA allows.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "tests/cli/cuda_driver.h"
#include "tests/cli/fake_driver.h"

namespace {

using namespace samestate::driver;
using samestate::fake::status;
using Pointer = unsigned long long;
using Work = std::function<void()>;

struct Stream {
  std::deque<Work> waiting;
};

std::recursive_mutex mutex;
std::map<Pointer, std::size_t> allocated;
std::set<Stream*> streams;
int inside = 0;  ///< how many of `on_device` are under way

void protect(int how) {
  for (const auto& [where, bytes] : allocated) ::mprotect(reinterpret_cast<void*>(where), bytes, how);
}

/// Runs work of the device itself, during which its memory is accessible.
void on_device(const Work& work) {
  if (inside++ == 0) protect(PROT_READ | PROT_WRITE);
  work();
  if (--inside == 0) protect(PROT_NONE);
}

int put(void* stream, Work work) {
  const std::scoped_lock lock(mutex);
  if (status() != kSuccess) return status();
  if (stream == nullptr)
    on_device(work);
  else
    static_cast<Stream*>(stream)->waiting.push_back(std::move(work));
  return kSuccess;
}

void finish(Stream& stream) {
  while (!stream.waiting.empty()) {
    const Work work = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    if (status() == kSuccess) on_device(work);
  }
}

void* at(Pointer there) { return reinterpret_cast<void*>(there); }

}  // namespace

namespace samestate::fake {

void run_all_streams() {
  const std::scoped_lock lock(mutex);
  for (Stream* stream : streams) finish(*stream);
}

}  // namespace samestate::fake

extern "C" {

int cuMemAlloc_v2(Pointer* there, std::size_t bytes) {
  const std::scoped_lock lock(mutex);
  if (status() != kSuccess) return status();
  void* where = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const char* const most = std::getenv("FAKE_MEMORY");
  if (where == MAP_FAILED || (most != nullptr && bytes > std::strtoull(most, nullptr, 10)))
    return kOutOfMemory;
  *there = reinterpret_cast<Pointer>(where);
  allocated[*there] = bytes;
  return kSuccess;
}
int cuMemFree_v2(Pointer there) {
  const std::scoped_lock lock(mutex);
  const auto found = allocated.find(there);
  if (found == allocated.end()) std::abort();
  ::munmap(at(there), found->second);
  allocated.erase(found);
  return status();
}
int cuMemcpyHtoD_v2(Pointer there, const void* here, std::size_t bytes) {
  return put(nullptr, [=] { std::memcpy(at(there), here, bytes); });
}
int cuMemcpyDtoH_v2(void* here, Pointer there, std::size_t bytes) {
  return put(nullptr, [=] { std::memcpy(here, at(there), bytes); });
}
int cuMemcpyHtoDAsync_v2(Pointer there, const void* here, std::size_t bytes, void* stream) {
  return put(stream, [=] { std::memcpy(at(there), here, bytes); });
}
int cuMemcpyDtoHAsync_v2(void* here, Pointer there, std::size_t bytes, void* stream) {
  return put(stream, [=] { std::memcpy(here, at(there), bytes); });
}
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, std::size_t bytes, void* stream) {
  return put(stream, [=] { std::memcpy(at(to), at(from), bytes); });
}
int cuMemsetD8Async(Pointer there, unsigned char value, std::size_t bytes, void* stream) {
  return put(stream, [=] { std::memset(at(there), value, bytes); });
}
int cuStreamCreate(void** stream, unsigned) {
  const std::scoped_lock lock(mutex);
  if (status() != kSuccess) return status();
  auto made = std::make_unique<Stream>();
  streams.insert(made.get());
  *stream = made.release();
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  const std::scoped_lock lock(mutex);
  if (stream != nullptr) finish(*static_cast<Stream*>(stream));
  return status();
}
int cuStreamDestroy_v2(void* stream) {
  const std::scoped_lock lock(mutex);
  const std::unique_ptr<Stream> own(static_cast<Stream*>(stream));
  finish(*own);
  streams.erase(own.get());
  return status();
}
int cuLaunchHostFunc(void* stream, void (*f)(void*), void* data) {
  return put(stream, [=] { f(data); });
}
int fake_launch(void* stream, void (*f)(void*), void* data) {
  return put(stream, [=] { f == nullptr ? samestate::fake::break_context() : f(data); });
}

}  // extern "C"
