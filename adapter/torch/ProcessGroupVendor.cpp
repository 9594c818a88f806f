#include "ProcessGroupVendor.h"

#include <cstring>
#include <thread>

#include "Common.h"
#include "ProcessGroupNccl.h"
#include "dit/dtype.h"
#include "dit/log.h"
#include "dit/options.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

const dit_collective_vtable *findTable() {
  const int option = dit_option_find("collectives");
  const auto *device = dit_runtime_get_vtable();
  return device == nullptr || (option >= 0 && dit_option_get_int(option) != 0) ? nullptr : device->collectives;
}

// Vendors differ in what they make of booleans, and of quotients of integers: those are gloo's.
std::optional<dit_reduce_op> findOperation(const c10d::ReduceOp &op, at::ScalarType dtype) {
  if (dtype == at::kBool) {
    return std::nullopt;
  }
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return DIT_REDUCE_OP_SUM;
    case c10d::ReduceOp::PRODUCT:
      return DIT_REDUCE_OP_PRODUCT;
    case c10d::ReduceOp::MIN:
      return DIT_REDUCE_OP_MIN;
    case c10d::ReduceOp::MAX:
      return DIT_REDUCE_OP_MAX;
    case c10d::ReduceOp::AVG:
      return c10::isIntegralType(dtype, true) ? std::nullopt : std::make_optional(DIT_REDUCE_OP_AVG);
    default:
      return std::nullopt;
  }
}

// Does every rank say so?
bool agree(Gloo &gloo, bool mine) {
  const at::Tensor answer = at::empty({1}, at::kInt);
  *answer.mutable_data_ptr<int>() = mine ? 1 : 0;
  gloo.allReduce(answer, c10d::ReduceOp::MIN);
  return *answer.const_data_ptr<int>() == 1;
}

std::vector<size_t> findOffsets(const std::vector<size_t> &counts) {
  std::vector<size_t> offsets;
  size_t at = 0;
  for (const size_t count : counts) {
    offsets.push_back(at);
    at += count;
  }
  return offsets;
}

size_t asCount(int64_t number) {
  return static_cast<size_t>(number);
}

}  // namespace

VendorCollectives::VendorCollectives(std::shared_ptr<GroupState> group) : group_(std::move(group)) {}

// A communicator that failed may wait for ever for its ranks: it is left alone.
VendorCollectives::~VendorCollectives() {
  if (comm_ != nullptr && group_->failure().empty() && dit_runtime_is_active()) {
    table_->comm_destroy(comm_);
  }
}

bool VendorCollectives::isOffered() {
  if (!looked_) {
    looked_ = true;
    table_ = findTable();
  }
  return table_ != nullptr;
}

bool VendorCollectives::connect(Gloo &gloo, c10::DeviceIndex device) {
  tried_ = true;
  dit_error err;
  err.message[0] = '\0';
  const at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(dit_unique_id))}, at::kByte);
  dit_unique_id id{};
  // Every rank asks for an id, to learn whether the library is there; that of rank 0 counts.
  const bool has_library = table_->get_unique_id(&id, &err) == DIT_OK;
  if (!agree(gloo, has_library)) {
    dit_log_write(DIT_LOG_INFO, "collectives go through the host: %s",
                  has_library ? "another rank has no library for them" : err.message);
    return false;
  }
  std::memcpy(bytes.mutable_data_ptr(), &id, sizeof id);
  gloo.broadcast(bytes, 0);
  std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
  void *comm = nullptr;
  dit_status status = table_->comm_create(device, group_->size, group_->rank, &id, &comm, &err);
  if (status == DIT_OK) {
    status = dit_stream_acquire(device, 0, &stream_, &err);
  }
  if (!agree(gloo, status == DIT_OK)) {
    dit_log_write(DIT_LOG_WARNING, "collectives go through the host: %s",
                  status == DIT_OK ? "another rank could not join the communicator" : err.message);
    if (comm != nullptr) {
      table_->comm_destroy(comm);
    }
    return false;
  }
  comm_ = comm;
  device_ = device;
  return true;
}

// The host looks, instead of waiting in the vendor's library: there is a time limit, and an abort.
void VendorCollectives::finish(Milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  auto pause = std::chrono::microseconds(10);
  for (bool idle = false;;) {
    DIT_CHECK(dit_stream_query(device_, stream_, &idle, &err));
    if (idle) {
      return;
    }
    DIT_CHECK(table_->comm_get_async_error(comm_, &err));
    const std::string failure = group_->failure();
    TORCH_CHECK(failure.empty(), failure);
    TORCH_CHECK(std::chrono::steady_clock::now() < end, "timed out waiting for the device's collectives");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(1000));
  }
}

bool VendorCollectives::run(Gloo &gloo, const Buffer &buffer, const Call &call) {
  if (!isOffered() || (!tried_ && !connect(gloo, buffer.device())) || comm_ == nullptr) {
    return false;
  }
  TORCH_CHECK(buffer.device() == device_, "the tensor is on device ", static_cast<int>(buffer.device()),
              ", but this group's communicator was made for device ", static_cast<int>(device_),
              ": keep to one device per process, or set DITORCH_COLLECTIVES=gloo");
  void *stream = nullptr;
  DIT_CHECK(dit_device_set_current(device_, &err));
  DIT_CHECK(dit_stream_get_raw(device_, stream_, &stream, &err));
  dit_error err;
  const dit_status status = call(comm_, stream, &err);
  if (status == DIT_ERR_UNSUPPORTED) {
    return false;
  }
  check(status, err);
  finish(gloo.timeout());
  return true;
}

bool VendorCollectives::broadcast(Gloo &gloo, const Buffer &buffer, int root) {
  void *data = buffer.deviceData();
  return run(gloo, buffer, [&](void *comm, void *stream, dit_error *err) {
    return table_->broadcast(data, data, asCount(buffer.nbytes()), DIT_DTYPE_U8, root, comm, stream, err);
  });
}

bool VendorCollectives::allReduce(Gloo &gloo, const Buffer &buffer, const c10d::ReduceOp &op) {
  const auto operation = findOperation(op, buffer.dtype());
  return operation && run(gloo, buffer, [&](void *comm, void *stream, dit_error *err) {
           void *data = buffer.deviceData();
           return table_->all_reduce(data, data, asCount(buffer.numel()), static_cast<int>(buffer.dtype()), *operation,
                                     comm, stream, err);
         });
}

bool VendorCollectives::reduce(Gloo &gloo, const Buffer &buffer, const c10d::ReduceOp &op, int root) {
  const auto operation = findOperation(op, buffer.dtype());
  return operation && run(gloo, buffer, [&](void *comm, void *stream, dit_error *err) {
           void *data = buffer.deviceData();
           return table_->reduce(data, root == group_->rank ? data : nullptr, asCount(buffer.numel()),
                                 static_cast<int>(buffer.dtype()), *operation, root, comm, stream, err);
         });
}

bool VendorCollectives::allGather(Gloo &gloo, const Buffer &output, const Buffer &input) {
  return run(gloo, input, [&](void *comm, void *stream, dit_error *err) {
    return table_->all_gather(input.deviceData(), output.deviceData(), asCount(input.nbytes()), DIT_DTYPE_U8, comm,
                              stream, err);
  });
}

bool VendorCollectives::reduceScatter(Gloo &gloo, const Buffer &output, const Buffer &input, const c10d::ReduceOp &op) {
  const auto operation = findOperation(op, output.dtype());
  return operation && run(gloo, output, [&](void *comm, void *stream, dit_error *err) {
           return table_->reduce_scatter(input.deviceData(), output.deviceData(), asCount(output.numel()),
                                         static_cast<int>(output.dtype()), *operation, comm, stream, err);
         });
}

bool VendorCollectives::allToAll(Gloo &gloo, const Buffer &output, const Buffer &input,
                                 const std::vector<int64_t> &output_counts, const std::vector<int64_t> &input_counts) {
  if (!isOffered() || table_->all_to_all_v == nullptr) {
    return false;
  }
  const std::vector<size_t> received(output_counts.begin(), output_counts.end());
  const std::vector<size_t> sent(input_counts.begin(), input_counts.end());
  const std::vector<size_t> received_offsets = findOffsets(received), sent_offsets = findOffsets(sent);
  return run(gloo, output, [&](void *comm, void *stream, dit_error *err) {
    return table_->all_to_all_v(input.deviceData(), sent.data(), sent_offsets.data(), output.deviceData(),
                                received.data(), received_offsets.data(), DIT_DTYPE_U8, comm, stream, err);
  });
}

}  // namespace ditorch
