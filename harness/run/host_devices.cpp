#include "harness/run/host_devices.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "reference/error.h"

namespace samestate {
namespace {

/// CUuuid in the driver API.
struct Uuid {
  std::array<unsigned char, 16> bytes{};
};
constexpr int kText = 256;

template <class Function>
Function function_of(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

/// Formats it as nvidia-smi does: GPU-8f6d0b1e-....
std::string text_of(const Uuid& uuid) {
  std::string out = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i)
    out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
  return out;
}

/// Returns the n-th entry of CUDA_VISIBLE_DEVICES; empty if there is none.
std::string entry(int n) {
  const char* const all = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream in(all == nullptr ? "" : all);
  std::string one;
  for (int i = 0; i <= n; ++i) {
    if (!std::getline(in, one, ',')) return "";
  }
  one.erase(0, one.find_first_not_of(' '));
  return one;
}

/// Returns what the driver says of a device as text.
std::string said(void* driver, const char* name, int device) {
  const auto ask = function_of<int (*)(char*, int, int)>(driver, name);
  std::array<char, kText> text{};
  return ask != nullptr && ask(text.data(), kText - 1, device) == 0 ? std::string(text.data()) : "";
}

}  // namespace

std::string HostDevice::text() const {
  return fmt::format("{}: {}, {}{}", ordinal, name, id, bus.empty() || bus == id ? "" : ", " + bus);
}

std::vector<HostDevice> devices_of_driver() {
  std::vector<HostDevice> out;
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return out;
  const auto init = function_of<int (*)(unsigned)>(driver, "cuInit");
  const auto count_of = function_of<int (*)(int*)>(driver, "cuDeviceGetCount");
  const auto get = function_of<int (*)(int*, int)>(driver, "cuDeviceGet");
  auto uuid_of = function_of<int (*)(Uuid*, int)>(driver, "cuDeviceGetUuid_v2");
  if (uuid_of == nullptr) uuid_of = function_of<int (*)(Uuid*, int)>(driver, "cuDeviceGetUuid");
  int count = 0;
  if (init == nullptr || count_of == nullptr || get == nullptr || init(0) != 0 || count_of(&count) != 0)
    return out;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (get(&device, i) != 0) continue;
    HostDevice d{i, said(driver, "cuDeviceGetName", device), "", said(driver, "cuDeviceGetPCIBusId", device),
                 ""};
    Uuid uuid;
    // When a device is lost, the numbers of the later ones change, but UUIDs do not; a slice (MIG) has
    // another name there.
    if (const std::string own = entry(i); own.starts_with("MIG")) {
      d.id = d.visible = own;
    } else if (uuid_of != nullptr && uuid_of(&uuid, device) == 0) {
      d.id = d.visible = text_of(uuid);
    } else {
      d.id = d.bus.empty() ? fmt::format("device-{}", i) : d.bus;
      d.visible = own.empty() ? std::to_string(i) : own;
    }
    out.push_back(std::move(d));
  }
  return out;
}

std::string text_of_devices(const std::vector<HostDevice>& devices) {
  std::string out;
  for (const HostDevice& d : devices) {
    std::string name = d.name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
    out += fmt::format("{}\t{}\t{}\t{}\t{}\n", d.ordinal, name, d.id, d.bus, d.visible);
  }
  return out;
}

std::vector<HostDevice> parse_devices(const std::string& text) {
  std::vector<HostDevice> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    HostDevice d;
    fields >> d.ordinal;
    const bool ok = fields.get() == '\t' && std::getline(fields, d.name, '\t') &&
                    std::getline(fields, d.id, '\t') && std::getline(fields, d.bus, '\t') &&
                    std::getline(fields, d.visible, '\t') && fields.eof();
    if (!ok) throw Error(fmt::format("'{}': no line of a device", line));
    out.push_back(std::move(d));
  }
  return out;
}

}  // namespace samestate
