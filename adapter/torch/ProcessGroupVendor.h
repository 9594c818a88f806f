// A vendor's own collectives (dit_collective_vtable), where it has them, for the groups of ProcessGroupNccl.
//
// The first call that may use them makes a communicator. All ranks agree on it through gloo: where one has none, none
// uses it. What the library does not take (a dtype, an operation) it refuses on every rank alike, and gloo does it.
// Calls run on the lane's thread, on a stream of their own; they return when their results are there.
#pragma once

#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ProcessGroupBuffer.h"
#include "ProcessGroupWork.h"
#include "dit/device.h"

namespace ditorch {

class Gloo;

class VendorCollectives final {
 public:
  explicit VendorCollectives(std::shared_ptr<GroupState> group);
  ~VendorCollectives();
  VendorCollectives(const VendorCollectives &) = delete;
  VendorCollectives &operator=(const VendorCollectives &) = delete;

  // Each of them: done, or false where gloo has to do it.
  bool broadcast(Gloo &gloo, const Buffer &buffer, int root);
  bool allReduce(Gloo &gloo, const Buffer &buffer, const c10d::ReduceOp &op);
  bool reduce(Gloo &gloo, const Buffer &buffer, const c10d::ReduceOp &op, int root);
  bool allGather(Gloo &gloo, const Buffer &output, const Buffer &input);
  bool reduceScatter(Gloo &gloo, const Buffer &output, const Buffer &input, const c10d::ReduceOp &op);
  // Counts of bytes per rank.
  bool allToAll(Gloo &gloo, const Buffer &output, const Buffer &input, const std::vector<int64_t> &output_counts,
                const std::vector<int64_t> &input_counts);

 private:
  using Call = std::function<dit_status(void *comm, void *stream, dit_error *err)>;

  bool isOffered();
  bool run(Gloo &gloo, const Buffer &buffer, const Call &call);
  bool connect(Gloo &gloo, c10::DeviceIndex device);
  void finish(Milliseconds limit);

  const std::shared_ptr<GroupState> group_;
  const dit_collective_vtable *table_ = nullptr;  // NULL: the vendor has none, or option collectives says gloo
  bool looked_ = false;                           // for the table: a group may be made before the device is started
  bool tried_ = false;                            // to connect
  void *comm_ = nullptr;
  c10::DeviceIndex device_ = 0;
  int64_t stream_ = 0;
};

}  // namespace ditorch
