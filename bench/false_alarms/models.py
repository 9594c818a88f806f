"""Training steps of whole models: a GPT, a CNN and an LSTM in float32 and bfloat16."""


def make_models():
    """name: function(dtype) -> (model, function that gives the loss)"""
    import torch
    from gpt import GPT
    from torch import nn
    from torch.nn import functional as F

    def gpt(dtype):
        model = GPT(64, 32, 48, 3, 4).to("cuda", dtype)
        tokens = torch.randint(0, 64, (2, 33), device="cuda")
        return model, lambda: model(tokens[:, :-1], tokens[:, 1:])[1]

    def cnn(dtype):
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3)]
        layers += [nn.GroupNorm(4, 32), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)]
        model = nn.Sequential(*layers).to("cuda", dtype)
        images = torch.randn(8, 3, 16, 16).to("cuda", dtype)
        labels = torch.randint(0, 10, (8,), device="cuda")
        return model, lambda: F.cross_entropy(model(images).float(), labels)

    def lstm(dtype):
        model = nn.ModuleList([nn.Embedding(50, 24), nn.LSTM(24, 32, 2), nn.Linear(32, 50)]).to("cuda", dtype)
        tokens = torch.randint(0, 50, (13, 4), device="cuda")

        def loss():
            hidden, _ = model[1](model[0](tokens[:-1]))
            return F.cross_entropy(model[2](hidden).flatten(0, 1).float(), tokens[1:].flatten())

        return model, loss

    return {"gpt": gpt, "cnn": cnn, "lstm": lstm}


def run_models(options, tally):
    import torch
    from op_tools import OpAutoCompare

    for name, make in make_models().items():
        for text in ("float32", "bfloat16"):
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                torch.manual_seed(seed)
                model, loss = make(getattr(torch, text))
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
                tool = OpAutoCompare(**options.tool)
                with tool:
                    for _ in range(options.steps):
                        loss().backward()
                        optimizer.step()
                        optimizer.zero_grad()
                tally.add(tool, f"{name} {text} seed {seed}")
