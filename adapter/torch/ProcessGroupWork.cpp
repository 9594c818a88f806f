#include "ProcessGroupWork.h"

#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>
#include <pthread.h>

#include <thread>
#include <utility>

#include "Common.h"
#include "Exit.h"
#include "Staging.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> makeFuture() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

bool contains(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}

std::string getText(const std::exception_ptr &error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error &e) {
    return e.what_without_backtrace();
  } catch (const std::exception &e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

// Without the place in gloo's source and its advice.
std::string shorten(const std::string &reason) {
  const size_t begin = reason.rfind("[", 0) == 0 ? reason.find("] ") : std::string::npos;
  const std::string text = begin == std::string::npos ? reason : reason.substr(begin + 2);
  return text.substr(0, text.find(". This is typically"));
}

}  // namespace

std::string GroupState::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void GroupState::fail(const std::string &text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.empty()) {
    failure_ = text;
  }
}

void GroupState::leave(const std::string &text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (left_.empty()) {
    left_ = text;
  }
}

std::string GroupState::takeLeft() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(left_, std::string());
}

std::string GroupState::name() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return name_;
}

void GroupState::setName(const std::string &name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  name_ = name;
}

Dependencies::Dependencies(const Tensors &inputs, const Tensors &outputs) {
  for (const Tensors *tensors : {&inputs, &outputs}) {
    for (const at::Tensor &tensor : *tensors) {
      add(tensor);
    }
  }
}

void Dependencies::add(const at::Tensor &tensor) {
  const int device = tensor.device().index();
  if (tensor.device().type() != kDevice || (seen_ >> device & 1)) {
    return;
  }
  if (dit_stream_get_current_raw(device) == nullptr && isHostAccessible()) {
    return;  // its default stream has no queue: its work is done when the call that made it returns
  }
  seen_ |= uint64_t{1} << device;
  events_.reserve(events_.size() + 1);
  dit_event *event = nullptr;
  DIT_CHECK(dit_event_create(device, 0, &event, &err));
  events_.push_back(event);
  DIT_CHECK(dit_event_record(event, device, dit_stream_get_current(device), &err));
}

Dependencies::~Dependencies() {
  for (dit_event *event : events_) {
    dit_event_destroy(event);
  }
}

void Dependencies::wait() {
  for (dit_event *event : events_) {
    DIT_CHECK(dit_event_synchronize(event, &err));
  }
}

LaneWork::LaneWork(std::shared_ptr<GroupState> group, const Call &call, const Tensors &inputs, Tensors outputs,
                   std::function<void()> body)
    : c10d::Work(group->rank, call.type, c10::str(group->backend, ":", call.title).c_str(), inputs),
      group_(std::move(group)),
      call_(call),
      outputs_(std::move(outputs)),
      body_(std::move(body)),
      dependencies_(std::make_unique<Dependencies>(inputs, outputs_)) {
  const Tensors &shown = inputs.empty() ? outputs_ : inputs;
  if (!shown.empty() && shown[0].device().type() == kDevice) {
    device_ = shown[0].device().index();
  }
  if (!shown.empty()) {
    shape_ = c10::str(" of ", shown[0].scalar_type(), shown[0].sizes());
  }
}

std::string LaneWork::describe() const {
  return c10::str("[rank ", group_->rank, "] ", group_->backend, " ", call_.name, " #", call_.sequence, shape_,
                  " in group ", group_->name(), " (", group_->size, " ranks)");
}

std::string LaneWork::explain(const std::string &reported) const {
  const std::string reason = shorten(reported);
  if (contains(reason, "imed out")) {
    return c10::str(describe(), " got no answer within ", call_.timeout.count(),
                    " ms: a rank hangs, is late, or never made this call. Look at what the other ranks do, or give "
                    "init_process_group a longer timeout. (",
                    reason, ")");
  }
  if (contains(reason, "onnection") || contains(reason, "roken pipe") || contains(reason, "peer")) {
    return c10::str(describe(),
                    " lost its connection: another rank ended or was killed. Look at the first error of the "
                    "other ranks. (",
                    reason, ")");
  }
  return c10::str(describe(), " failed: ", reason);
}

void LaneWork::execute() {
  std::exception_ptr error;
  try {
    const std::string failure = group_->failure();
    if (!failure.empty()) {
      C10_THROW_ERROR(DistBackendError,
                      c10::str(describe(), " did not run, because the group failed before: ", failure));
    }
    std::function<void()> body;  // of this frame: cancel() may complete the work while it runs
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      body.swap(body_);
      begin_ = std::chrono::steady_clock::now();
    }
    if (!body) {
      return;  // cancelled
    }
    dependencies_->wait();
    dependencies_.reset();
    try {
      const c10::InferenceMode inference;  // the tensors may be inference tensors, which only this mode may write
      body();
    } catch (...) {
      const std::string text = explain(getText(std::current_exception()));
      group_->fail(text);
      C10_THROW_ERROR(DistBackendError, text);
    }
  } catch (...) {
    error = std::current_exception();
  }
  complete(error);
}

void LaneWork::cancel(const std::string &why) {
  complete(std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, __LINE__}, c10::str(describe(), " was aborted: ", why))));
}

void LaneWork::complete(std::exception_ptr error) {
  std::function<void()> body;  // what it holds is released outside of the lock
  bool settle_now = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (completed_) {
      return;
    }
    end_ = std::chrono::steady_clock::now();
    completed_ = true;
    exception_ = std::move(error);
    settle_now = settle_on_completion_;
    body.swap(body_);
  }
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  cv_.notify_all();
  if (settle_now) {
    // Callbacks of the future may wait for another collective of this lane, so they must not run on its thread.
    beginRelease();
    std::thread([self = c10::intrusive_ptr<LaneWork>::reclaim_copy(this)]() mutable {
      self->settle();
      self.reset();
      endRelease();
    }).detach();
  }
}

void LaneWork::settle() {
  if (exception_) {
    future_->setErrorIfNeeded(exception_);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

// False: the caller has to wait. A host that waited here could not give another rank what it waits for (a server
// whose ranks exchange messages over a side channel hung so).
bool LaneWork::blockStream() {
  if (device_ < 0 || call_.type == c10d::OpType::BARRIER || !isHostAccessible() ||
      dit_stream_get_current_raw(device_) == nullptr || isCompleted()) {
    return false;
  }
  auto held = std::make_unique<c10::intrusive_ptr<LaneWork>>(c10::intrusive_ptr<LaneWork>::reclaim_copy(this));
  const auto block = [](void *argument) {
    const std::unique_ptr<c10::intrusive_ptr<LaneWork>> work(static_cast<c10::intrusive_ptr<LaneWork> *>(argument));
    LaneWork &self = **work;
    std::unique_lock<std::mutex> lock(self.mutex_);
    self.cv_.wait(lock, [&self] { return self.completed_; });
    if (self.exception_) {
      self.group_->leave(getText(self.exception_));
    }
  };
  DIT_CHECK(dit_stream_launch_host(device_, dit_stream_get_current(device_), block, held.get(), &err));
  held.release();  // NOLINT(bugprone-unused-return-value): the stream's now
  return true;
}

bool LaneWork::wait(Milliseconds timeout) {
  if (timeout == kNoTimeout && blockStream()) {
    return true;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (timeout == kNoTimeout) {
    cv_.wait(lock, [this] { return completed_; });
  } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
    C10_THROW_ERROR(DistBackendError, c10::str(describe(), ": caught collective operation timeout: it is not complete ",
                                               "after the ", timeout.count(), " ms that wait() was given"));
  }
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void LaneWork::synchronize() {
  wait();
}

void LaneWork::blockCurrentStream() {
  wait();
}

void LaneWork::abort() {
  cancel("abort() was called");
}

int LaneWork::sourceRank() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(completed_ && source_, describe(), " has no source rank", completed_ ? "" : " yet: it is not complete");
  return *source_;
}

Tensors LaneWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> LaneWork::getFuture() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_) {
      return future_;
    }
    future_ = makeFuture();
    if (!completed_) {
      settle_on_completion_ = true;
      return future_;
    }
  }
  settle();
  return future_;
}

float LaneWork::getDuration() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(completed_, describe(), " has no duration yet: it is not complete");
  return std::chrono::duration<float, std::milli>(end_ - begin_).count();
}

uint64_t LaneWork::getSequencenumber() const {
  return call_.sequence;
}

BatchWork::BatchWork(int rank, std::vector<WorkPtr> parts)
    : c10d::Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

bool BatchWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr &part) { return part->isCompleted(); });
}

bool BatchWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr &part) { return part->isSuccess(); });
}

std::exception_ptr BatchWork::exception() const {
  for (const WorkPtr &part : parts_) {
    if (const std::exception_ptr error = part->exception()) {
      return error;
    }
  }
  return nullptr;
}

bool BatchWork::wait(Milliseconds timeout) {
  for (const WorkPtr &part : parts_) {
    part->wait(timeout);
  }
  return true;
}

void BatchWork::synchronize() {
  wait();
}

Tensors BatchWork::result() {
  Tensors all;
  for (const WorkPtr &part : parts_) {
    const Tensors some = part->result();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> BatchWork::getFuture() {
  auto future = makeFuture();
  beginRelease();
  std::thread([future, self = c10::intrusive_ptr<BatchWork>::reclaim_copy(this)]() mutable {
    try {
      self->wait();
      future->markCompleted(c10::IValue(self->result()));
    } catch (...) {
      future->setErrorIfNeeded(std::current_exception());
    }
    future.reset();
    self.reset();
    endRelease();
  }).detach();
  return future;
}

namespace {

// A message to oneself, as gloo's works are: wait() does it.
class MailWork final : public c10d::Work {
 public:
  MailWork(int rank, std::function<void()> body) : c10d::Work(rank), body_(std::move(body)), rank_(rank) {}
  bool wait(Milliseconds) override {
    body_();
    return true;
  }
  int sourceRank() const override { return rank_; }

 private:
  std::function<void()> body_;
  int rank_;
};

constexpr Milliseconds kMailPatience(50);  // between two looks at whether the group failed

}  // namespace

WorkPtr Mailbox::send(const at::Tensor &bytes) {
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  at::Tensor copy = bytes.clone();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    messages_.push_back(std::move(copy));
  }
  changed_.notify_all();
  return c10::make_intrusive<MailWork>(group_->rank, [] {});
}

WorkPtr Mailbox::receive(at::Tensor bytes) {
  return c10::make_intrusive<MailWork>(group_->rank, [self = shared_from_this(), bytes] {
    const at::Tensor message = self->take();
    TORCH_CHECK(message.numel() == bytes.numel(), "a message of ", message.numel(),
                " bytes from the rank to itself is ", "received into a tensor of ", bytes.numel(), " bytes");
    bytes.copy_(message);
  });
}

at::Tensor Mailbox::take() {
  const auto end = std::chrono::steady_clock::now() + group_->timeout.load();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kMailPatience, [this] { return !messages_.empty(); })) {
    TORCH_CHECK(group_->failure().empty(), group_->failure());
    TORCH_CHECK(std::chrono::steady_clock::now() < end, "Timed out waiting for a message from the rank to itself");
  }
  at::Tensor message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void Lane::push(c10::intrusive_ptr<LaneWork> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, !stopped_, "no collective can be started: ",
                     group_->failure().empty() ? "the process group was destroyed" : group_->failure());
    queue_.push_back(std::move(work));
    beginRelease();
    if (!started_) {
      started_ = true;
      std::thread([self = shared_from_this()] { self->run(); }).detach();
    }
  }
  changed_.notify_all();
}

void Lane::run() {
  pthread_setname_np(pthread_self(), "dit_nccl");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || stopped_; });
    if (queue_.empty()) {
      return;
    }
    running_ = std::move(queue_.front());
    queue_.pop_front();
    auto work = running_;
    lock.unlock();
    work->execute();
    work.reset();
    lock.lock();
    auto finished = std::move(running_);
    lock.unlock();
    finished.reset();  // may be the last owner of tensors
    endRelease();
    changed_.notify_all();
    lock.lock();
  }
}

bool Lane::drain(Milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && !running_; });
}

void Lane::abort(const std::string &why) {
  std::deque<c10::intrusive_ptr<LaneWork>> works;
  size_t queued = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    works.swap(queue_);
    queued = works.size();
    if (running_) {
      works.push_front(running_);
    }
  }
  for (const auto &work : works) {
    work->cancel(why);
  }
  works.clear();
  for (; queued > 0; queued--) {
    endRelease();
  }
}

void Lane::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace ditorch
