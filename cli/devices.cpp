#include "cli/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "cli/options.h"
#include "cli/rank_place.h"
#include "fixtures/quote.h"
#include "harness/processes/each_device.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

constexpr const char* kRemedy =
    "write device numbers separated by commas, for example --devices 0,2, or leave it out to use "
    "all";

std::vector<int> numbers_of(const std::string& asked) {
  std::vector<int> out;
  std::istringstream in(asked + ",");
  for (std::string one; std::getline(in, one, ',');) {
    int number = -1;
    const char* const last = one.data() + one.size();
    const auto [end, error] = std::from_chars(one.data(), last, number);
    if (one.empty() || error != std::errc{} || end != last || number < 0)
      throw Error(
          fmt::format("--devices {}: {} is not a device number; {}", quote(asked), quote(one), kRemedy));
    if (std::find(out.begin(), out.end(), number) != out.end())
      throw Error(
          fmt::format("--devices {}: {} is given twice; name each device once", quote(asked), number));
    out.push_back(number);
  }
  return out;
}

/// Returns this rank's share of its host's devices: one each, or every n-th if there are more devices than
/// ranks.
std::vector<HostDevice> share_of_rank(const std::vector<HostDevice>& all) {
  const RankPlace place = rank_place();
  if (place.ranks == 1 || all.empty()) return all;
  const std::size_t count = all.size();
  const auto local = static_cast<std::size_t>(place.local);
  const std::size_t step = place.locals > 0 ? std::min(static_cast<std::size_t>(place.locals), count) : count;
  std::vector<HostDevice> own;
  for (std::size_t i = local % step; i < count; i += step) own.push_back(all[i]);
  return own;
}

/// Returns true if kernels distribute the parts of a call over devices themselves: other kernels', or all
/// that are wanted here.
bool divides_itself(const KernelTable& table, const std::vector<const KernelRow*>& wanted) {
  const auto ranked = [](const KernelRow& row) {
    const CaseForm* form = row.system->form(row.form);
    return row.device == "cuda" && form != nullptr && form->ranked;
  };
  const auto added = table.added();
  if (std::any_of(added.begin(), added.end(), ranked)) return true;
  std::vector<const KernelRow*> cuda;
  for (const KernelRow* row : wanted) {
    if (row->device == "cuda") cuda.push_back(row);
  }
  return !cuda.empty() &&
         std::all_of(cuda.begin(), cuda.end(), [&](const KernelRow* row) { return ranked(*row); });
}

}  // namespace

void add_devices_option(CLI::App& app, std::string& asked) {
  app.add_option("--devices", asked,
                 "GPUs that share the cases of cuda kernels, for example 0,2: numbers among those that "
                 "CUDA_VISIBLE_DEVICES shows (default: all)")
      ->check(named());
}

std::unique_ptr<Devices> devices_of(const std::string& asked, const KernelTable& table,
                                    const std::vector<const KernelRow*>& wanted) {
  const bool all = asked.empty() || asked == "all";
  const std::vector<int> numbers = all ? std::vector<int>() : numbers_of(asked);
  std::vector<HostDevice> seen = look_for_devices();
  if (!all && seen.empty())
    throw Error(fmt::format(
        "--devices {}: this process sees no CUDA device; leave out the option, or check nvidia-smi "
        "and CUDA_VISIBLE_DEVICES",
        asked));
  std::vector<HostDevice> chosen;
  for (const int number : numbers) {
    if (number >= std::ssize(seen))
      throw Error(
          fmt::format("--devices {}: there is no device {}, but {}: {}; {}", asked, number,
                      seen.size() == 1 ? "one, 0" : fmt::format("{}, 0..{}", seen.size(), seen.size() - 1),
                      seen[0].name, kRemedy));
    chosen.push_back(seen[static_cast<std::size_t>(number)]);
  }
  // A single device needs no name.
  if (!all && seen.size() > 1) {
    std::string visible;
    for (const HostDevice& d : chosen) visible += (visible.empty() ? "" : ",") + d.visible;
    ::setenv("CUDA_VISIBLE_DEVICES", visible.c_str(), 1);
  }
  if (divides_itself(table, wanted)) return nullptr;
  chosen = share_of_rank(all ? seen : chosen);
  if (chosen.empty()) return nullptr;
  // If this process sees several devices, a share of one must be named.
  if (chosen.size() == 1 && seen.size() > 1) ::setenv("CUDA_VISIBLE_DEVICES", chosen[0].visible.c_str(), 1);
  return std::make_unique<Devices>(std::move(chosen), sees_a_device, [](const std::string& sentence) {
    fmt::print(stderr, "samestate: {}\n", sentence);
  });
}

std::vector<std::string> texts_of(const Devices* devices) {
  std::vector<std::string> out;
  if (devices == nullptr) return out;
  for (const HostDevice& d : devices->all()) out.push_back(d.text());
  return out;
}

void require_each_device(const Devices* devices) {
  if (rank_place().ranks > 1)
    throw Error("--each-device compares the devices of one host: leave it out, or start without mpirun");
  const std::size_t count = devices == nullptr ? 0 : devices->all().size();
  if (count < 2)
    throw Error(fmt::format("--each-device: {} here, but it compares at least two devices; leave it out",
                            count == 0 ? "no CUDA device is seen" : "one CUDA device is used"));
}

std::string device_options(const Record& record, const Devices* devices) {
  if (devices == nullptr || devices->all().size() < 2) return "";
  if (record.judgement.gate == kBetweenDevices) {
    std::vector<int> numbers;
    for (const HostDevice& d : devices->all()) numbers.push_back(d.ordinal);
    return fmt::format(" --devices {} --each-device", fmt::join(numbers, ","));
  }
  const int number = devices->numbered(record.gpu);
  return number == Devices::kNone ? "" : fmt::format(" --devices {}", devices->at(number).ordinal);
}

}  // namespace samestate::cli
