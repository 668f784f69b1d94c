#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "harness/processes/devices.h"
#include "harness/records/record.h"
#include "harness/run/kernel_table.h"

/// Which GPUs of this host a verb uses (docs/devices.md).
namespace samestate::cli {

/// Adds --devices to a verb; `asked` stays empty if it is not given.
void add_devices_option(CLI::App& app, std::string& asked);
inline constexpr const char* kEachDeviceHelp =
    "run each case of a cuda kernel on every device: outputs must agree bit for bit";

/// The devices that the processes of this command share: those requested by their numbers among the ones that
/// this process sees, or else all; under mpirun this rank's part of those on its host. None if there is no
/// device, and if kernels divide their calls among devices themselves (sequence_parallel), because their
/// process must see all of them: this is assumed for a plugin or subject, and for all cuda kernels among the
/// `wanted` of this build. If devices were requested, this command and everything that it starts see only
/// these from then on. Throws Error for an invalid or repeated number, and for one that no device has.
[[nodiscard]] std::unique_ptr<Devices> devices_of(const std::string& asked, const KernelTable& table,
                                                  const std::vector<const KernelRow*>& wanted = {});

/// HostDevice::text of each device, for the run line of a file; empty for null.
[[nodiscard]] std::vector<std::string> texts_of(const Devices* devices);

/// Throws Error if --each-device has nothing to compare: with fewer than two devices, and under mpirun.
void require_each_device(const Devices* devices);

/// The options that the command to repeat a failure needs besides its line: " --devices 1" if there are
/// several, and --each-device for a difference between devices.
[[nodiscard]] std::string device_options(const Record& record, const Devices* devices);

}  // namespace samestate::cli
