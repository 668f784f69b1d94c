#include "harness/processes/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "harness/processes/pool.h"

namespace samestate {
namespace {

constexpr double kLookSeconds = 60.0;
/// For so long after a device was seen, a message about it is taken to be about something other than its
/// absence.
constexpr std::chrono::seconds kBelieved{30};

}  // namespace

Devices::Devices(std::vector<HostDevice> all, Look look, Say say)
    : all_(std::move(all)), left_(all_.size(), true), look_(std::move(look)), say_(std::move(say)) {}

int Devices::numbered(const std::string& id) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const HostDevice& d) { return d.id == id; });
  return found == all_.end() ? kNone : static_cast<int>(found - all_.begin());
}

bool Devices::is_left(int number) const {
  return number >= 0 && number < static_cast<int>(all_.size()) && left_[static_cast<std::size_t>(number)];
}

int Devices::left() const { return static_cast<int>(std::count(left_.begin(), left_.end(), true)); }

int Devices::least(const std::vector<int>& loads) const {
  int best = kNone;
  for (int i = 0; i < static_cast<int>(all_.size()); ++i) {
    const auto load = [&](int n) { return loads.at(static_cast<std::size_t>(n)); };
    if (is_left(i) && (best == kNone || load(i) < load(best))) best = i;
  }
  return best;
}

std::optional<std::string> Devices::visible_to(int number) const {
  if (number == kNone) return "";
  // Such a process sees what its parent sees: a single device needs no name, and a slice of a device or a
  // container may not know its name.
  if (all_.size() == 1) return std::nullopt;
  return at(number).visible;
}

std::optional<std::string> Devices::visible_as(const std::string& id) const {
  const int number = numbered(id);
  return number == kNone ? std::nullopt : visible_to(number);
}

bool Devices::is_gone(int number, const std::string& said) {
  if (!is_left(number)) return true;
  if (!look_) return false;
  const auto seen = said.empty() ? seen_.end() : seen_.find({number, said});
  if (seen != seen_.end() && Clock::now() - seen->second < kBelieved) return false;
  if (look_(visible_to(number))) {
    if (!said.empty()) seen_[{number, said}] = Clock::now();
    return false;
  }
  left_[static_cast<std::size_t>(number)] = false;
  losses_.push_back(fmt::format("device {} is lost: {}", at(number).text(),
                                left() == 0
                                    ? "none is left, and cases of cuda kernels are skipped from here on"
                                : left() == 1 ? "its cases go to the one that is left"
                                              : fmt::format("its cases go to the {} that are left", left())));
  if (say_) say_(losses_.back());
  return true;
}

bool sees_a_device(const std::optional<std::string>& visible) {
  const auto look = [&]() -> std::string {
    if (visible) ::setenv("CUDA_VISIBLE_DEVICES", visible->c_str(), 1);
    return devices_of_driver().empty() ? "" : "yes";
  };
  return !run_apart(look, kLookSeconds).text.empty();
}

std::vector<HostDevice> look_for_devices() {
  return parse_devices(run_apart([] { return text_of_devices(devices_of_driver()); }, kLookSeconds).text);
}

}  // namespace samestate
