#pragma once

/// Between the parts of the stand-in for libcuda.so.1.
namespace samestate::fake {

/// Returns the status that a call returns in this process now.
[[nodiscard]] int status();

/// As after an illegal memory access.
void break_context();

/// Does what is waiting on every stream.
void run_all_streams();

}  // namespace samestate::fake

extern "C" {

/// A launch: f(data) when its stream comes to it, with the device's memory at hand; null f: an illegal access. On the null
/// stream at once, since the device is idle and other streams do not hold that one up.
int fake_launch(void* stream, void (*f)(void*), void* data);

}  // extern "C"
