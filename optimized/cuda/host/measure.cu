#include "optimized/cuda/host/measure.cuh"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>

#include "optimized/cuda/host/device_memory.cuh"
#include "optimized/cuda/host/meter.h"

namespace samestate::cuda {
namespace {

/// A sample lasts at least this long, since the clock of an event ticks every 0.5 us.
constexpr double kSampleSeconds = 200e-6;
constexpr int kMostCallsInAGraph = 4096;
constexpr std::chrono::milliseconds kBetweenReadings{5};
/// Samples between two waits of the host; as many launches fit into its queue.
constexpr int kAhead = 256;
constexpr int kCacheTimes = 4;

struct Stream {
  Stream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t handle = nullptr;
};

struct Event {
  Event() { check(cudaEventCreate(&handle), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) const { check(cudaEventRecord(handle, stream), "cudaEventRecord"); }
  cudaEvent_t handle = nullptr;
};

double seconds_between(const Event& from, const Event& to) {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, from.handle, to.handle), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

/// Calls captured from a stream.
class Graph {
 public:
  template <class Enqueue>
  Graph(cudaStream_t stream, Enqueue&& enqueue) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&replay_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
  }
  ~Graph() { cudaGraphExecDestroy(replay_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(replay_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t replay_ = nullptr;
};

class Measurement {
 public:
  Measurement(int copies, const TimingRequest& request, const OnCopy& call, const OnCopy& poison)
      : copies_(copies), request_(request), call_(call), poison_(poison) {
    check(cudaDeviceSynchronize(), "the upload");
  }

  TimedCalls run() {
    for (int i = 0; i < std::max(request_.warm_up, 1); ++i) call_(i % copies_, stream_.handle);
    const double estimate = estimated_seconds();
    plan(estimate);
    const double sample = std::max(estimate * calls_, 1e-7);
    const int wanted = static_cast<int>(std::clamp(request_.seconds / sample,
                                                   static_cast<double>(std::max(request_.least_samples, 1)),
                                                   static_cast<double>(std::max(request_.most_samples, 1))));
    meter_.begin();
    for (int taken = 0; taken + 1 < wanted; taken += kAhead) take(std::min(kAhead, wanted - 1 - taken));
    meter_.end();
    for (int copy = 0; copy < copies_; ++copy) poison_(copy, stream_.handle);
    take(1);
    result_.timing.how = graph_ ? "graph" : "events";
    result_.timing.calls_per_sample = calls_;
    result_.timing.copies = copies_;
    result_.timing.clock = meter_.clock(), result_.timing.power = meter_.power();
    result_.timing.slowed = meter_.slowed();
    return result_;
  }

 private:
  /// Estimates the time of one call from one run over every copy.
  double estimated_seconds() {
    const Event begin;
    const Event end;
    begin.record(stream_.handle);
    for (int copy = 0; copy < copies_; ++copy) call_(copy, stream_.handle);
    end.record(stream_.handle);
    wait();
    return seconds_between(begin, end) / copies_;
  }

  /// Short calls are captured in a graph that uses each copy equally often.
  void plan(double estimate) {
    if (estimate >= kSampleSeconds) return;
    const double rounds = std::ceil(kSampleSeconds / (std::max(estimate, 1e-6) * copies_));
    calls_ = std::min(static_cast<int>(rounds) * copies_, std::max(kMostCallsInAGraph, copies_));
    graph_ = std::make_unique<Graph>(stream_.handle, [this] {
      for (int i = 0; i < calls_; ++i) call_(i % copies_, stream_.handle);
    });
    result_.last_copy = (calls_ - 1) % copies_;
    graph_->launch(stream_.handle);
  }

  void sample() {
    if (graph_) return graph_->launch(stream_.handle);
    result_.last_copy = next_++ % copies_;
    call_(result_.last_copy, stream_.handle);
  }

  void take(int count) {
    while (std::ssize(events_) < count + 1) events_.push_back(std::make_unique<Event>());
    events_[0]->record(stream_.handle);
    for (int i = 1; i <= count; ++i) {
      sample();
      events_[static_cast<std::size_t>(i)]->record(stream_.handle);
    }
    // Reads the meter while they run, or the last of them: a reading takes longer than a launch.
    while (cudaEventQuery(events_[static_cast<std::size_t>(count)]->handle) == cudaErrorNotReady) {
      meter_.read();
      std::this_thread::sleep_for(kBetweenReadings);
    }
    wait();
    for (std::size_t i = 1; i <= static_cast<std::size_t>(count); ++i)
      result_.timing.seconds.push_back(seconds_between(*events_[i - 1], *events_[i]) / calls_);
  }

  void wait() { check(cudaStreamSynchronize(stream_.handle), "the timed kernel"); }

  int copies_;
  const TimingRequest& request_;
  const OnCopy& call_;
  const OnCopy& poison_;
  Stream stream_;
  std::vector<std::unique_ptr<Event>> events_;
  std::unique_ptr<Graph> graph_;
  int calls_ = 1;
  int next_ = 0;
  Meter meter_;
  TimedCalls result_;
};

}  // namespace

int copies_beyond_cache(std::size_t bytes, const TimingRequest& request) {
  std::size_t free = 0;
  std::size_t total = 0;
  const int cache = device_attribute(cudaDevAttrL2CacheSize);
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (bytes == 0) return 1;
  const auto one = static_cast<std::int64_t>(bytes);
  const std::int64_t wanted = (std::int64_t{kCacheTimes} * cache + one - 1) / one;
  std::int64_t fit = 1 + static_cast<std::int64_t>(free) / 10 * 9 / one;
  if (request.most_bytes > 0) fit = std::min(fit, request.most_bytes / one);
  return static_cast<int>(std::max<std::int64_t>(1, std::min(wanted, fit)));
}

TimedCalls measure(int copies, const TimingRequest& request, const OnCopy& call, const OnCopy& poison) {
  return Measurement(copies, request, call, poison).run();
}

}  // namespace samestate::cuda
