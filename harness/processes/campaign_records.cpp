#include <algorithm>
#include <utility>

#include "harness/processes/campaign.h"

namespace samestate {

CaseRunner case_runner(const KernelTable& table) {
  return [&table](const Case& c) { return case_result(run_case(c, table)); };
}

CaseResult case_result(const Record& record, std::uint64_t edges) {
  return {record.judgement, record.seconds, edges,        record.gpu,   record.outputs,
          record.ran_by,    record.spent,   record.tuned, record.policy};
}

Record record_of(const Case& c, const KernelTable& table, const CaseResult& result) {
  Record record = planned_record(c, table);
  record.judgement = result.judgement;
  record.seconds = result.seconds;
  record.outputs = result.outputs;
  record.ran_by = result.ran_by;
  record.spent = result.spent;
  record.tuned = result.tuned;
  if (!result.policy.empty()) record.policy = result.policy;
  // Only a client of `samestate serve` knows the device that it runs on.
  const bool of_client = record.options.find(kOfClient) != record.options.npos;
  if (record.device == "cuda" && !of_client) record.gpu = result.gpu;
  return record;
}

WorkerOptions shared_process(int threads, double timeout, bool on_device, Devices* devices) {
  WorkerOptions options;
  options.threads = threads;
  options.timeout = timeout;
  options.confirm = true;
  if (!on_device) return options;
  options.apart = 1;
  if (devices == nullptr || devices->all().empty()) return options;
  const int count = static_cast<int>(devices->all().size());
  options.workers = options.apart = count;
  // Each process gets two threads if there are two at all, so that threads of one kernel meet.
  options.threads = std::max((threads + count - 1) / count, std::min(threads, 2));
  options.devices = devices;
  return options;
}

}  // namespace samestate
