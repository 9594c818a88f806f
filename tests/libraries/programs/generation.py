"""generate, pipelines and loading of pretrained folders, with tiny random models and tokenizers built here."""

from __future__ import annotations

import json
import warnings

import tokenizers
import torch
import transformers

from . import DEVICE, case, rows, variants
from .trainer import VOCABULARY, gpt2, llama, qwen_moe, t5, vit

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers|torch")

WORDS = [f"w{number}" for number in range(VOCABULARY - 4)]


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """One token per word."""
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[BOS]", "[EOS]", "[UNK]", *WORDS])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, padding_side="left", **special)


def sharp(model):
    """Larger weights: the tokens' scores lie far apart, so that rounding does not decide."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() > 1 and "norm" not in name:
                value.mul_(6.0)
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model.eval()


def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Two prompts; the second is padded on the left."""
    tokens = rows(2, 6, VOCABULARY, 9).clamp_(min=4)
    mask = torch.ones_like(tokens)
    mask[1, :2] = 0
    tokens[1, :2] = 0
    return tokens, mask


def generate(model, **arguments) -> dict:
    model.config.output_router_logits = False
    model = sharp(model).to(DEVICE)
    tokens, mask = (value.to(DEVICE) for value in prompts())
    with torch.no_grad():
        result = model.generate(input_ids=tokens, attention_mask=mask, max_new_tokens=10, **arguments)
    assert result.device.type == DEVICE
    return {"tokens": result.tolist()}


MODELS = {"gpt2": gpt2, "llama": llama, "qwen_moe": qwen_moe, "t5": t5}


@variants("generate: greedy", {name: {"make": make} for name, make in MODELS.items()})
def generate_greedy(folder, make):
    return generate(make(), do_sample=False)


@variants("generate: beam search", {name: {"make": make} for name, make in (("gpt2", gpt2), ("t5", t5))})
def generate_beam(folder, make):
    return generate(make(), do_sample=False, num_beams=3, num_return_sequences=2, length_penalty=0.8)


@variants("generate: by attention implementation", {"eager": {"attention": "eager"}, "sdpa": {"attention": "sdpa"}})
def generate_attention(folder, attention):
    return generate(llama(attention), do_sample=False)


@variants("generate: cache implementations", {name: {"kind": name} for name in ("static", "dynamic", "offloaded")})
def generate_cache(folder, kind):
    if kind == "offloaded" and DEVICE == "cpu":
        kind = "dynamic"  # there is nowhere to offload to; the tokens are the same
    return generate(llama(), do_sample=False, cache_implementation=kind)


@case("generate: logits processors")
def generate_penalties(folder):
    return generate(gpt2(), do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=2, min_new_tokens=4)


@case("generate: assisted by a smaller model")
def generate_assisted(folder):
    """A smaller model proposes, the larger one decides: the same tokens as without it."""
    model, helper = sharp(llama()).to(DEVICE), sharp(llama(num_hidden_layers=1)).to(DEVICE)
    tokens = prompts()[0][:1].to(DEVICE)
    with torch.no_grad():
        plain = model.generate(tokens, max_new_tokens=10, do_sample=False)
        assisted = model.generate(tokens, max_new_tokens=10, do_sample=False, assistant_model=helper)
    return {"tokens": assisted.tolist(), "same": torch.equal(plain, assisted)}


@case("generate: sampling, repeatable under a seed")
def generate_sampling(folder):
    """Sampling repeats under one seed, changes with another, and obeys top_k."""
    model = sharp(gpt2()).to(DEVICE)
    tokens, mask = (value.to(DEVICE) for value in prompts())
    arguments = {"attention_mask": mask, "max_new_tokens": 16, "do_sample": True, "temperature": 5.0}

    def draw(seed, **more):
        transformers.set_seed(seed)
        with torch.no_grad():
            return model.generate(tokens, **arguments, **more)

    first, again, other = draw(3), draw(3), draw(4)
    greedy = draw(3, top_k=1)
    with torch.no_grad():
        wanted = model.generate(tokens, attention_mask=mask, max_new_tokens=16, do_sample=False)
    return {
        "repeats": torch.equal(first, again),
        "differs": not torch.equal(first, other),
        "top_1_is_greedy": torch.equal(greedy, wanted),
    }


@case("generate: scores and hidden states")
def generate_scores(folder):
    """Scores, attentions and hidden states of generation."""
    model = sharp(gpt2("eager")).to(DEVICE)
    tokens, mask = (value.to(DEVICE) for value in prompts())
    more = {"return_dict_in_generate": True, "output_scores": True, "output_hidden_states": True}
    with torch.no_grad():
        found = model.generate(tokens, attention_mask=mask, max_new_tokens=4, do_sample=False, **more)
    return {
        "tokens": found.sequences.tolist(),
        "values": [float(score.double().norm()) for score in found.scores],
        "states": [float(state[-1].double().norm()) for state in found.hidden_states],
    }


def save_gpt2(folder) -> str:
    home = str(folder / "model")
    sharp(gpt2()).save_pretrained(home, max_shard_size="40KB")
    tokenizer().save_pretrained(home)
    return home


@variants(
    'pipeline("text-generation"), device by name and by index',
    {"text": {"where": DEVICE}, "index": {"where": 0 if DEVICE == "cuda" else -1}},
)
def pipeline_text(folder, where):
    home = save_gpt2(folder)
    pipe = transformers.pipeline("text-generation", model=home, tokenizer=home, device=where)
    assert pipe.device.type == DEVICE and pipe.model.device.type == DEVICE
    texts = pipe(["w3 w5 w7", "w9"], max_new_tokens=6, do_sample=False, batch_size=2)
    return {"texts": [entry[0]["generated_text"] for entry in texts]}


@case('pipeline("image-classification")')
def pipeline_image(folder):
    model = vit().eval()
    processor = transformers.ViTImageProcessorPil if hasattr(transformers, "ViTImageProcessorPil") else None
    processor = (processor or transformers.ViTImageProcessor)(size={"height": 16, "width": 16})
    from PIL import Image

    picture = Image.new("RGB", (20, 20), (200, 30, 90))
    pipe = transformers.pipeline("image-classification", model=model, image_processor=processor, device=DEVICE)
    answers = pipe(picture, top_k=4)
    return {"labels": [row["label"] for row in answers], "values": [row["score"] for row in answers]}


@case('pipeline("feature-extraction")')
def pipeline_features(folder):
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    pipe = transformers.pipeline(
        "feature-extraction", model=transformers.BertModel(config).eval(), tokenizer=tokenizer(), device=DEVICE
    )
    return {"values": pipe("w3 w5 w7")[0]}


LOADS = {
    "to": {},
    "map_device": {"device_map": DEVICE},
    "map_auto": {"device_map": "auto"},
    "map_index": {"device_map": {"": 0 if DEVICE == "cuda" else "cpu"}},
    "half": {"dtype": torch.float16},
    "bfloat16_map": {"dtype": "bfloat16", "device_map": DEVICE},
}


@variants(
    'from_pretrained of a local folder: .to("cuda"), device_map, dtype',
    {name: {"arguments": arguments} for name, arguments in LOADS.items()},
)
def load_pretrained(folder, arguments):
    """From a local folder of safetensors shards; tied weights stay one tensor."""
    model = transformers.AutoModelForCausalLM.from_pretrained(save_gpt2(folder), **arguments)
    if "device_map" not in arguments:
        model = model.to(DEVICE)
    devices = {value.device.type for value in model.state_dict().values()}
    tokens = prompts()[0].to(DEVICE)
    with torch.no_grad():
        logits = model(tokens).logits.float()
        created = model.generate(tokens, max_new_tokens=5, do_sample=False)
    return {
        "tied": model.lm_head.weight is model.transformer.wte.weight,
        "on_device": devices == {DEVICE},
        "dtype": str(model.dtype),
        "values": logits.double().flatten(1).norm(dim=1).tolist(),
        "tokens": created.tolist() if "dtype" not in arguments else [],
    }


@case("from_pretrained with parts on the CPU and on disk")
def load_offload(folder):
    """device_map with a part on the CPU and a part on disk: accelerate's hooks carry weights and activations."""
    place = 0 if DEVICE == "cuda" else "cpu"
    table = {
        "transformer.wte": place,
        "lm_head": place,
        "transformer.wpe": place,
        "transformer.h.0": place,
        "transformer.h.1": "cpu" if DEVICE == "cuda" else "disk",
        "transformer.ln_f": "disk",
    }
    model = transformers.AutoModelForCausalLM.from_pretrained(
        save_gpt2(folder), device_map=table, offload_folder=str(folder / "offload")
    )
    tokens = prompts()[0].to(DEVICE)
    with torch.no_grad():
        logits = model(tokens).logits
        created = model.generate(tokens, max_new_tokens=5, do_sample=False)
    return {"values": logits.double().flatten(1).norm(dim=1).tolist(), "tokens": created.tolist()}


@case("save_pretrained on the device, load on the CPU")
def save_round_trip(folder):
    """A model saved from the device loads on the CPU with the same bits; JSON of the config names no device."""
    model = sharp(llama()).to(DEVICE)
    model.save_pretrained(str(folder / "saved"))
    again = transformers.AutoModelForCausalLM.from_pretrained(str(folder / "saved"), device_map="cpu")
    pairs = zip(model.state_dict().items(), again.state_dict().items(), strict=True)
    config = json.loads((folder / "saved" / "config.json").read_text())
    return {
        "same": all(a == b and torch.equal(x.cpu(), y) and y.device.type == "cpu" for (a, x), (b, y) in pairs),
        "tied": again.lm_head.weight is again.model.embed_tokens.weight,
        "clean": "cuda" not in json.dumps(config) and "dit" not in json.dumps(config.get("dtype", "")),
    }
