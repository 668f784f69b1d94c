#include "harness/processes/each_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/records/hash.h"
#include "harness/run/output_hashes.h"

namespace samestate {
namespace {

bool is_judged(const Record& record) {
  const Verdict v = record.judgement.verdict;
  return v == Verdict::pass || v == Verdict::vacuous;
}

/// Returns true if another device than the first made the run and its result can be compared: a device that
/// was lost in the meantime gave none, or its run was made by the first.
bool counts(const Record& first, const Record& other) {
  return other.gpu != first.gpu && other.judgement.verdict != Verdict::skipped;
}

/// Returns the hash of an output in Record::outputs.
std::string hash_in(const std::string& outputs, const std::string& name) {
  const std::size_t at = (" " + outputs).find(" " + name + ":");
  if (at == std::string::npos) return "nothing";
  const std::size_t begin = at + name.size() + 1;
  return outputs.substr(begin, outputs.find(' ', begin) - begin);
}

}  // namespace

bool EachDevice::begin(std::size_t index, const Record& record) {
  const int own = devices_->numbered(record.gpu);
  if (own == Devices::kNone || record.outputs.empty() || !is_judged(record)) return false;
  Open open{record};
  for (int i = 0; i < static_cast<int>(devices_->all().size()); ++i) {
    if (i == own || !devices_->is_left(i)) continue;
    runs_.push_back({index, devices_->at(i).id});
    ++open.runs_left;
  }
  if (open.runs_left == 0) return false;
  open_.emplace(index, std::move(open));
  return true;
}

std::optional<EachDevice::Run> EachDevice::next() {
  if (runs_.empty()) return std::nullopt;
  Run run = std::move(runs_.front());
  runs_.pop_front();
  return run;
}

/// Returns the first run on another device that differs from the first device's by any bit.
const Record* EachDevice::disagreeing(const Open& open) {
  const auto found = std::find_if(open.others.begin(), open.others.end(), [&](const Record& other) {
    if (!counts(open.first, other)) return false;
    return !is_judged(other) || other.outputs != open.first.outputs;
  });
  return found == open.others.end() ? nullptr : &*found;
}

std::optional<Record> EachDevice::take(std::size_t index, const Record& record) {
  Open& open = open_.at(index);
  std::optional<Record> done;
  if (open.repeating) {
    done = failure(open, record);
  } else {
    open.others.push_back(record);
    if (--open.runs_left > 0) return std::nullopt;
    const bool all = std::all_of(open.others.begin(), open.others.end(),
                                 [&](const Record& other) { return counts(open.first, other); });
    compared_ += all ? 1 : 0;
    if (disagreeing(open) != nullptr) {
      open.repeating = true;
      runs_.push_front({index, open.first.gpu});
      return std::nullopt;
    }
    done = std::move(open.first);
  }
  open_.erase(index);
  return done;
}

std::vector<std::pair<std::size_t, Record>> EachDevice::rest() {
  std::vector<std::pair<std::size_t, Record>> out;
  for (auto& [index, open] : open_) {
    open.first.judgement = {};
    open.first.judgement.verdict = Verdict::skipped;
    open.first.judgement.reason = "the run ended before it had run on each device";
    out.emplace_back(index, std::move(open.first));
  }
  open_.clear();
  runs_.clear();
  return out;
}

std::string EachDevice::name_of_device(const std::string& id) const {
  const int number = devices_->numbered(id);
  return number == Devices::kNone ? fmt::format("device {}", id)
                                  : fmt::format("device {}", devices_->at(number).text());
}

/// `again` is what the first device returned when it ran the case a second time.
Record EachDevice::failure(const Open& open, const Record& again) const {
  const Record& other = *disagreeing(open);
  Record record = open.first;
  Judgement& j = record.judgement;
  j = {};
  j.verdict = Verdict::fail;
  j.gate = kBetweenDevices;
  j.ratio = std::numeric_limits<double>::infinity();
  const std::string first = name_of_device(record.gpu);
  const std::string second = name_of_device(other.gpu);
  if (!is_judged(other)) {
    j.reason = fmt::format("a pass on one device and {} on another: {} passes, but on {} {}",
                           name_of(other.judgement.verdict), first, second,
                           other.judgement.reason.empty() ? other.judgement.gate : other.judgement.reason);
    return record;
  }
  const std::string output = first_difference(record.outputs, other.outputs);
  const std::string hash = hash_in(record.outputs, output);
  const std::string then = again.gpu == record.gpu ? hash_in(again.outputs, output) : "";
  const std::string of_both =
      fmt::format("hash {} on {}, {} on {}", hash, first, hash_in(other.outputs, output), second);
  if (then.empty() || again.outputs == record.outputs) {
    j.reason = fmt::format("{} has other bits on another device, which passes too: {}; the first {}", output,
                           of_both, then.empty() ? "could not be asked again" : "repeats its own");
  } else {
    j.reason = fmt::format(
        "{} has other bits in each run, so the kernel is not deterministic: {}, and {} on the first again",
        output, of_both, then);
  }
  return record;
}

}  // namespace samestate
