"""The original's tests of the device facilities that the tools build on: streams, events, autograd hooks, profiler."""

import torch


def test_current_stream(device):
    assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)


def test_current_stream_of_each_device(device):
    for index in range(torch.cuda.device_count()):
        assert isinstance(torch.cuda.current_stream(index), torch.cuda.Stream)


def test_event(device):
    x = torch.randn(200, 200, device=device)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    x.add(x)
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0


def test_register_torch_hook(device):
    x = torch.randn(4, 5, device=device, requires_grad=True)
    y = x.exp()
    seen = {}
    y.grad_fn.register_prehook(lambda outputs: seen.update(before=outputs[0].clone()))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.update(after=(inputs[0].clone(), outputs[0].clone())))
    y.register_hook(lambda grad: seen.update(tensor=grad.clone()))
    (y * 3).sum().backward()
    assert torch.equal(seen["before"], seen["tensor"]) and torch.equal(seen["after"][1], seen["tensor"])
    assert torch.equal(seen["after"][0], x.grad)


def test_register_torch_hook_linear(device):
    weight, bias, x = torch.randn(3, 4), torch.randn(3), torch.randn(2, 4)

    def chain(place):
        w, b, v = (t.to(place).requires_grad_() for t in (weight, bias, x))
        grads = {}
        w.register_hook(lambda grad: grads.update(w=grad.clone()))
        b.register_hook(lambda grad: grads.update(b=grad.clone()))
        torch.nn.functional.linear(v, w, b).relu().sum().backward()
        assert torch.equal(grads["w"], w.grad) and torch.equal(grads["b"], b.grad)
        return w.grad.cpu(), b.grad.cpu(), v.grad.cpu()

    for mine, wanted in zip(chain(device), chain("cpu"), strict=True):
        assert torch.allclose(mine, wanted, atol=1e-5)


def test_profile(device):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        x = torch.randn(3, 3, device=device, requires_grad=True)
        x.mul(2).sum().backward()
    assert any(event.key.startswith("aten::") for event in profile.key_averages())
