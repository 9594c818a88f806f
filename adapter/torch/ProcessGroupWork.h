// What a collective is while it runs: a Work on a lane.
//
// A lane is a queue with one thread: what is put on it runs in order, as on NCCL's stream. Collectives of a group share
// one lane; messages between two ranks have one per peer and direction, so that nothing waits for what it does not
// depend on. A work first waits for the device work it was launched behind, then runs, then completes exactly once:
// with its results, with an error that says what happened, or because the group was aborted.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "Exit.h"
#include "ProcessGroupBuffer.h"

struct dit_event;

namespace ditorch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Milliseconds = std::chrono::milliseconds;

// What all lanes of a group share. The first failure is the group's: nothing runs after it.
class GroupState {
 public:
  GroupState(std::string backend, c10::intrusive_ptr<c10d::Backend> inner, int rank, int size, Milliseconds timeout)
      : backend(std::move(backend)), inner(std::move(inner)), rank(rank), size(size), timeout(timeout) {}

  std::string failure() const;
  void fail(const std::string &text);
  // A failure that reached a stream and no caller yet: torch.cuda.synchronize() tells it, once.
  void leave(const std::string &text);
  std::string takeLeft();
  std::string name() const;
  void setName(const std::string &name);

  const std::string backend;                      // "nccl", or "gloo" for device tensors of a gloo group
  const c10::intrusive_ptr<c10d::Backend> inner;  // gloo
  const int rank;
  const int size;
  std::atomic<Milliseconds> timeout;

 private:
  mutable std::mutex mutex_;
  std::string failure_;
  std::string left_;
  std::string name_ = "?";
};

// Events of side streams that hold work which the tensors depend on.
class Dependencies {
 public:
  Dependencies(const Tensors &inputs, const Tensors &outputs);
  ~Dependencies();
  Dependencies(const Dependencies &) = delete;
  Dependencies &operator=(const Dependencies &) = delete;
  void wait();

 private:
  void add(const at::Tensor &tensor);

  uint64_t seen_ = 0;  // devices, as bits
  std::vector<dit_event *> events_;
};

class LaneWork final : public c10d::Work {
 public:
  struct Call {
    c10d::OpType type;
    const char *name;   // "all_reduce"
    const char *title;  // "all_reduce", as the profiler shows it behind "nccl:"
    uint64_t sequence;
    Milliseconds timeout;
  };

  LaneWork(std::shared_ptr<GroupState> group, const Call &call, const Tensors &inputs, Tensors outputs,
           std::function<void()> body);

  // On the lane's thread.
  void execute();
  // Without running; does nothing to a work that is complete.
  void cancel(const std::string &why);

  // On a side stream later work of the stream waits, as with NCCL; else, for a barrier, or with a timeout the caller.
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream();
  void abort() override;
  int sourceRank() const override;
  // Where the body of a receive leaves the rank it came from.
  void setSource(std::shared_ptr<int> source) { source_ = std::move(source); }
  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;

 private:
  std::string describe() const;
  std::string explain(const std::string &reported) const;
  void complete(std::exception_ptr error);
  void settle();
  bool blockStream();

  std::shared_ptr<GroupState> group_;
  const Call call_;
  Tensors outputs_;
  std::function<void()> body_;
  std::unique_ptr<Dependencies> dependencies_;
  int device_ = -1;  // of the first device tensor
  std::string shape_;
  std::shared_ptr<int> source_;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::steady_clock::time_point end_{};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool settle_on_completion_ = false;
};

// Works that were started between startCoalescing and endCoalescing, as one.
class BatchWork final : public c10d::Work {
 public:
  BatchWork(int rank, std::vector<WorkPtr> parts);
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<WorkPtr> parts_;
};

// What a rank sends to itself: gloo has no connection for it. Messages are copies, and arrive in order.
class Mailbox final : public std::enable_shared_from_this<Mailbox> {
 public:
  explicit Mailbox(std::shared_ptr<GroupState> group) : group_(std::move(group)) {}
  WorkPtr send(const at::Tensor &bytes);
  // Waiting for the work fills `bytes`, when there is a message.
  WorkPtr receive(at::Tensor bytes);

 private:
  at::Tensor take();

  std::shared_ptr<GroupState> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<at::Tensor> messages_;
};

class Lane final : public std::enable_shared_from_this<Lane> {
 public:
  explicit Lane(std::shared_ptr<GroupState> group) : group_(std::move(group)) {}
  void push(c10::intrusive_ptr<LaneWork> work);
  // Wait until nothing is queued or running; false after `timeout`.
  bool drain(Milliseconds timeout);
  // Complete everything, also what is running, with an error.
  void abort(const std::string &why);
  // Let the thread end when the queue is empty. It is never joined: a caller may hold the GIL that the thread needs.
  void stop();

 private:
  // The work goes before its owner.
  struct Entry {
    Owner owner;
    c10::intrusive_ptr<LaneWork> work;
  };

  void run();

  std::shared_ptr<GroupState> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  Entry running_;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace ditorch
