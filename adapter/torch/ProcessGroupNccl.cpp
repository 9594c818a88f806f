#include "ProcessGroupNccl.h"

#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "Common.h"
#include "Storage.h"
#include "dit/runtime.h"

namespace ditorch {

// Launching

WorkPtr ProcessGroupNccl::post(std::shared_ptr<Lane> lane, c10::intrusive_ptr<LaneWork> work) {
  lane->push(work);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (coalescing_ > 0) {
    batch_.push_back(work);
  }
  return work;
}

WorkPtr ProcessGroupNccl::launch(OpType type, const char *name, const char *title, const Tensors &inputs,
                                 Tensors outputs, Milliseconds timeout, Body body) {
  const Milliseconds limit = timeout == c10d::kUnsetTimeout ? group_->timeout.load() : timeout;
  const LaneWork::Call call{type, name, title, ++sequence_, limit};
  auto *inner = group_->inner.get();  // the work holds the group
  return post(lane_,
              c10::make_intrusive<LaneWork>(group_, call, inputs, std::move(outputs),
                                            [inner, limit, body = std::move(body)] { body(Gloo(*inner, limit)); }));
}

std::shared_ptr<Lane> ProcessGroupNccl::findLane(OpType type, int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto &lane = message_lanes_[{type == OpType::SEND, peer}];
  if (!lane) {
    lane = std::make_shared<Lane>(group_);
  }
  return lane;
}

std::vector<std::shared_ptr<Lane>> ProcessGroupNccl::listLanes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Lane>> lanes{lane_};
  for (const auto &[key, lane] : message_lanes_) {
    lanes.push_back(lane);
  }
  return lanes;
}

void ProcessGroupNccl::startCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  coalescing_++;
}

WorkPtr ProcessGroupNccl::endCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(coalescing_ > 0, "endCoalescing without startCoalescing");
  if (--coalescing_ > 0 || batch_.empty()) {
    return nullptr;
  }
  std::vector<WorkPtr> parts;
  parts.swap(batch_);
  return c10::make_intrusive<BatchWork>(getRank(), std::move(parts));
}

void ProcessGroupNccl::drain(const std::vector<std::shared_ptr<Lane>> &lanes, Milliseconds limit) {
  for (const auto &lane : lanes) {
    lane->drain(limit);
  }
}

void ProcessGroupNccl::drainAll() {
  std::vector<std::pair<std::vector<std::shared_ptr<Lane>>, Milliseconds>> all;
  std::vector<std::shared_ptr<GroupState>> states;
  {
    const std::lock_guard<std::mutex> lock(alive().mutex);
    for (ProcessGroupNccl *group : alive().groups) {
      all.emplace_back(group->listLanes(), group->group_->timeout.load());
      states.push_back(group->group_);
    }
  }
  for (const auto &[lanes, limit] : all) {
    drain(lanes, limit);
  }
  for (const auto &state : states) {
    const std::string text = state->takeLeft();
    TORCH_CHECK_WITH(DistBackendError, text.empty(), text);
  }
}

std::vector<int64_t> ProcessGroupNccl::listAll() {
  const std::lock_guard<std::mutex> lock(alive().mutex);
  std::vector<int64_t> ids;
  for (const ProcessGroupNccl *group : alive().groups) {
    ids.push_back(group->getID());
  }
  return ids;
}

void ProcessGroupNccl::stopLanes() {
  for (const auto &lane : listLanes()) {
    lane->stop();
  }
}

void ProcessGroupNccl::abort() {
  const std::string why = "the process group was aborted";
  group_->fail(why);
  for (const auto &lane : listLanes()) {
    lane->abort(why);
  }
  stopLanes();
}

void ProcessGroupNccl::shutdown() {
  if (group_->failure().empty()) {
    drain();
  }
  stopLanes();
}

WorkPtr ProcessGroupNccl::barrier(const c10d::BarrierOptions &options) {
  for (const int64_t device : options.device_ids) {
    resolveIndex(static_cast<c10::DeviceIndex>(device));
  }
  const int device = options.device_ids.empty() ? dit_device_get_current() : static_cast<int>(options.device_ids[0]);
  synchronizeCurrentStream(static_cast<c10::DeviceIndex>(device));
  return launch(OpType::BARRIER, "barrier", "barrier", {}, {}, options.timeout, [](Gloo gloo) { gloo.barrier(); });
}

// messages: handed to gloo at once, so that two ranks may both send before they receive

WorkPtr ProcessGroupNccl::launchMessage(OpType type, const char *name, const char *title, Tensors &tensors, int peer,
                                        const std::function<WorkPtr(Tensors &)> &start) {
  const at::Tensor &tensor = getOnly(tensors, name);
  Buffer::checkDevice(tensor, name);
  if (!tensor.is_contiguous(tensor.suggest_memory_format())) {
    TORCH_WARN_ONCE("Detected non-contiguous tensor in P2P operations. Its elements are sent in logical order.");
  }
  const std::string failure = group_->failure();
  if (!failure.empty()) {
    C10_THROW_ERROR(DistBackendError, c10::str(group_->backend, " ", name, ": the group failed before: ", failure));
  }
  synchronizeCurrentStream(tensor.device().index());
  auto buffer = std::make_shared<Buffer>(tensor);
  Tensors bytes;
  {
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
    bytes.push_back(buffer->bytes());
  }
  const WorkPtr posted = start(bytes);
  const bool receives = type != OpType::SEND;
  const LaneWork::Call call{type, name, title, 0, group_->timeout.load()};
  auto source = std::make_shared<int>(-1);
  auto work = c10::make_intrusive<LaneWork>(group_, call, tensors, receives ? tensors : Tensors{},
                                            [posted, buffer, receives, source] {
                                              posted->wait();
                                              if (receives) {
                                                buffer->store();
                                                *source = posted->sourceRank();
                                              }
                                            });
  work->setSource(source);
  return post(findLane(type, peer), std::move(work));
}

// As with NCCL, the tag is ignored: messages between two ranks arrive in order.
WorkPtr ProcessGroupNccl::send(Tensors &tensors, int destination, int) {
  return launchMessage(OpType::SEND, "send", "send", tensors, destination, [&](Tensors &bytes) {
    return destination == getRank() ? mailbox_->send(bytes[0]) : group_->inner->send(bytes, destination, 0);
  });
}

WorkPtr ProcessGroupNccl::recv(Tensors &tensors, int source, int) {
  return launchMessage(OpType::RECV, "recv", "recv", tensors, source, [&](Tensors &bytes) {
    return source == getRank() ? mailbox_->receive(bytes[0]) : group_->inner->recv(bytes, source, 0);
  });
}

WorkPtr ProcessGroupNccl::recvAnysource(Tensors &tensors, int) {
  return launchMessage(OpType::RECVANYSOURCE, "recv", "recvAnySource", tensors, -1,
                       [&](Tensors &bytes) { return group_->inner->recvAnysource(bytes, 0); });
}

namespace {

// For Python: no Python header is needed, because process groups travel as TorchScript objects

ProcessGroupNccl &findBackend(const c10::intrusive_ptr<c10d::ProcessGroup> &group) {
  auto *backend = dynamic_cast<ProcessGroupNccl *>(group->getBackend(kDevice).get());
  TORCH_CHECK(backend != nullptr, "the process group has no backend of ditorch for the device");
  return *backend;
}

// `carrier` holds a gloo backend for the CPU; afterwards it holds a backend over it for the device.
void addNccl(const c10::intrusive_ptr<c10d::ProcessGroup> &carrier, const std::string &name, int64_t timeout) {
  carrier->setBackend(kDevice, c10d::ProcessGroup::BackendType::NCCL,
                      c10::make_intrusive<ProcessGroupNccl>(name, carrier->getBackend(c10::kCPU), carrier->getRank(),
                                                            carrier->getSize(), Milliseconds(timeout)));
}

int64_t getNcclId(const c10::intrusive_ptr<c10d::ProcessGroup> &group) {
  return findBackend(group).getID();
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("nccl_add(__torch__.torch.classes.c10d.ProcessGroup carrier, str name, int timeout) -> ()", &addNccl);
  m.def("nccl_id(__torch__.torch.classes.c10d.ProcessGroup group) -> int", &getNcclId);
  m.def("nccl_list() -> int[]", &ProcessGroupNccl::listAll);
  m.def("nccl_drain() -> ()", &ProcessGroupNccl::drainAll);
}

}  // namespace
}  // namespace ditorch
