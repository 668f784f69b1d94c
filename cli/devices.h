#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "harness/processes/devices.h"
#include "harness/records/record.h"
#include "harness/run/kernel_table.h"

/// Which GPUs of this host a verb uses (docs/do/devices.md).
namespace samestate::cli {

/// --devices of a verb; `asked` stays empty where it is not given.
void add_devices_option(CLI::App& app, std::string& asked);
inline constexpr const char* kEachDeviceHelp =
    "run each case of a cuda kernel on every device: outputs must agree bit for bit";

/// The devices that the processes of this command share: those that are asked for, by their numbers among the ones that
/// this process sees, else all; under mpirun the part of them that is this rank's among those of its host. None where
/// there is no device, and where kernels divide their calls among devices themselves (sequence_parallel), whose process must
/// see all: a plugin's or subject's, or all cuda kernels among the `wanted` of this build. Those that were asked for are the
/// only ones that this command and what it starts see from then on.
/// Throws Error for a number that is none, or twice there, or of no device.
[[nodiscard]] std::unique_ptr<Devices> devices_of(const std::string& asked, const KernelTable& table,
                                                  const std::vector<const KernelRow*>& wanted = {});

/// HostDevice::text of each, for the run line of a file; none for none.
[[nodiscard]] std::vector<std::string> texts_of(const Devices* devices);

/// Throws Error where --each-device has nothing to compare: below two devices, and under mpirun.
void require_each_device(const Devices* devices);

/// What the command that repeats a failure needs beside its line: " --devices 1" where there are several, and of a
/// difference between devices --each-device.
[[nodiscard]] std::string device_options(const Record& record, const Devices* devices);

}  // namespace samestate::cli
