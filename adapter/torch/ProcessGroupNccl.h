// The backend behind init_process_group("nccl"), and behind "gloo" for device tensors: collectives on device memory,
// carried by the vendor's library where it has one (ProcessGroupVendor.h), and by gloo.
//
// The embedded device's memory is host memory, so gloo works on it directly. What gloo cannot do is made of what it
// can: every dtype (data travels as bytes, arithmetic is in ProcessGroupReduce), unequal and non-contiguous outputs,
// lists. What NCCL refuses is refused. Checks happen in the caller, the rest on a lane (ProcessGroupWork.h).
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "Common.h"
#include "ProcessGroupBuffer.h"
#include "ProcessGroupVendor.h"
#include "ProcessGroupWork.h"

namespace ditorch {

using c10d::OpType;
using Lists = std::vector<Tensors>;
using Inner = c10d::Backend;

// Gloo's calls, made to wait. `bytes` tensors have one dimension and no gaps.
class Gloo {
 public:
  Gloo(Inner &inner, Milliseconds timeout) : inner_(inner), timeout_(timeout) {}

  void broadcast(at::Tensor bytes, int root) {
    if (bytes.numel() > 0) {
      c10d::BroadcastOptions options = make<c10d::BroadcastOptions>();
      options.rootRank = root;
      Tensors tensors{std::move(bytes)};
      inner_.broadcast(tensors, options)->wait();
    }
  }
  void allReduce(at::Tensor numbers, c10d::ReduceOp::RedOpType op) {
    if (numbers.numel() > 0) {
      c10d::AllreduceOptions options = make<c10d::AllreduceOptions>();
      options.reduceOp = op;
      Tensors tensors{std::move(numbers)};
      inner_.allreduce(tensors, options)->wait();
    }
  }
  void reduce(at::Tensor numbers, c10d::ReduceOp::RedOpType op, int root) {
    if (numbers.numel() > 0) {
      c10d::ReduceOptions options = make<c10d::ReduceOptions>();
      options.reduceOp = op;
      options.rootRank = root;
      Tensors tensors{std::move(numbers)};
      inner_.reduce(tensors, options)->wait();
    }
  }
  void allGather(Tensors outputs, at::Tensor input) {
    if (input.numel() > 0) {
      Lists lists{std::move(outputs)};
      Tensors tensors{std::move(input)};
      inner_.allgather(lists, tensors, make<c10d::AllgatherOptions>())->wait();
    }
  }
  void gather(Tensors outputs, at::Tensor input, int root) {
    if (input.numel() > 0) {
      c10d::GatherOptions options = make<c10d::GatherOptions>();
      options.rootRank = root;
      Lists lists;
      if (!outputs.empty()) {
        lists.push_back(std::move(outputs));
      }
      Tensors tensors{std::move(input)};
      inner_.gather(lists, tensors, options)->wait();
    }
  }
  void scatter(at::Tensor output, Tensors inputs, int root) {
    if (output.numel() > 0) {
      c10d::ScatterOptions options = make<c10d::ScatterOptions>();
      options.rootRank = root;
      Lists lists;
      if (!inputs.empty()) {
        lists.push_back(std::move(inputs));
      }
      Tensors tensors{std::move(output)};
      inner_.scatter(tensors, lists, options)->wait();
    }
  }
  // Counts of bytes per rank. A rank with nothing to send still takes part.
  void allToAll(at::Tensor output, at::Tensor input, std::vector<int64_t> output_counts,
                std::vector<int64_t> input_counts) {
    inner_.alltoall_base(output, input, output_counts, input_counts, make<c10d::AllToAllOptions>())->wait();
  }
  Milliseconds timeout() const { return timeout_; }
  void barrier() { inner_.barrier(make<c10d::BarrierOptions>())->wait(); }

 private:
  template <class Options>
  Options make() const {
    Options options;
    options.timeout = timeout_;
    return options;
  }

  Inner &inner_;
  Milliseconds timeout_;
};

class ProcessGroupNccl final : public c10d::Backend {
 public:
  ProcessGroupNccl(std::string name, c10::intrusive_ptr<Inner> gloo, int rank, int size, Milliseconds timeout)
      : Backend(rank, size),
        group_(std::make_shared<GroupState>(std::move(name), std::move(gloo), rank, size, timeout)),
        lane_(std::make_shared<Lane>(group_)),
        vendor_(group_->backend == "nccl" ? std::make_shared<VendorCollectives>(group_) : nullptr),
        mailbox_(std::make_shared<Mailbox>(group_)) {
    init();
    const std::lock_guard<std::mutex> lock(alive().mutex);
    alive().groups.insert(this);
  }
  ~ProcessGroupNccl() override {
    {
      const std::lock_guard<std::mutex> lock(alive().mutex);
      alive().groups.erase(this);
    }
    stopLanes();
  }

  const std::string getBackendName() const override { return group_->backend; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(group_->backend, group_->timeout.load());
  }
  void setTimeout(Milliseconds timeout) override {
    group_->timeout = timeout;
    group_->inner->setTimeout(timeout);
  }
  void setGroupUid(const std::string &name) override {
    Backend::setGroupUid(name);
    group_->setName(name);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void enableCollectivesTiming() override {}
  c10d::ErrorType getError() {
    return group_->failure().empty() ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
  }
  void eagerConnectSingleDevice(at::Device device) override { resolveIndex(device.index()); }

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
  WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
  WorkPtr allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &options) override;
  WorkPtr gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
  WorkPtr scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &options) override;
  WorkPtr reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &options) override;
  WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                               const c10d::ReduceScatterOptions &options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &options) override;
  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) override;
  WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
  WorkPtr barrier(const c10d::BarrierOptions &options) override;
  WorkPtr send(Tensors &tensors, int destination, int tag) override;
  WorkPtr recv(Tensors &tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors &tensors, int tag) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void waitForPendingWorks() override { drain(); }
  void abort() override;
  void shutdown() override;
  // Wait, up to the group's timeout, until nothing runs.
  void drain() { drain(listLanes(), group_->timeout.load()); }
  static void drainAll();
  static std::vector<int64_t> listAll();

 private:
  using Body = std::function<void(Gloo)>;

  WorkPtr launch(OpType type, const char *name, const char *title, const Tensors &inputs, Tensors outputs,
                 Milliseconds timeout, Body body);
  WorkPtr post(std::shared_ptr<Lane> lane, c10::intrusive_ptr<LaneWork> work);
  WorkPtr launchMessage(OpType type, const char *name, const char *title, Tensors &tensors, int peer,
                        const std::function<WorkPtr(Tensors &)> &start);
  std::shared_ptr<Lane> findLane(OpType type, int peer);
  std::vector<std::shared_ptr<Lane>> listLanes();
  void stopLanes();
  WorkPtr launchAllGather(OpType type, const char *name, const char *title, const Tensors &outputs,
                          const Tensors &inputs, const c10d::AllgatherOptions &options);
  WorkPtr launchReduceScatter(OpType type, const char *name, const char *title, const Tensors &outputs,
                              const Tensors &inputs, const c10d::ReduceScatterOptions &options);

  static void drain(const std::vector<std::shared_ptr<Lane>> &lanes, Milliseconds limit);

  struct Alive {
    std::mutex mutex;
    std::set<ProcessGroupNccl *> groups;
  };
  // Never destroyed: groups may be, after the destructors of static objects ran.
  static Alive &alive() {
    static auto *all = new Alive;
    return *all;
  }

  const std::shared_ptr<GroupState> group_;
  const std::shared_ptr<Lane> lane_;
  const std::shared_ptr<VendorCollectives> vendor_;  // nullptr: gloo was asked for
  const std::shared_ptr<Mailbox> mailbox_;
  std::mutex mutex_;
  std::map<std::pair<bool, int>, std::shared_ptr<Lane>> message_lanes_;  // by (is a send, peer)
  std::vector<WorkPtr> batch_;
  int coalescing_ = 0;
  std::atomic<uint64_t> sequence_{0};
};

inline const at::Tensor &getOnly(const Tensors &tensors, const char *what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, " takes one tensor per process, not ", tensors.size());
  return tensors[0];
}

}  // namespace ditorch
