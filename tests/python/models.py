"""What transformers' models gain: the step of a training and tokens per second, through fa2 and through sdpa.

    python tests/python/models.py [--rounds 5] [--only bert] [--csv models.csv]

Needs PyTorch, transformers and a GPU; exits with 77 without. Models are made from their configurations, with random
weights, in bf16, both ways with the same ones; the ways take turns. "first" is the first step or text, with what had
to be found and compiled; the others are medians, between brackets the quartiles of single rounds' ratios. Whether
both ways generate the same tokens is said, and is no condition: in bf16 two right kernels differ in the last bit, and
a random model's best two tokens may be that close.
"""

import argparse
import copy
import csv
import statistics
import sys
import time

import torch

try:
    import transformers
    import fa2_attn.transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

WAYS = ("sdpa", "fa2")
TEXT = {"vocab_size": 8000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12,
        "num_attention_heads": 16, "max_position_embeddings": 4096}
GROUPED = {**TEXT, "num_key_value_heads": 4}
NEW = 64  # tokens of a text
PROMPT = 1000
TURN = 4  # steps one behind the other


def make(kind, config):
    """A model for each way, of the same weights."""
    made = {}
    for way in WAYS:
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = kind._from_config(copy.deepcopy(config), attn_implementation=way)
        made[way] = model.to("cuda", torch.bfloat16)
    return made


def seconds(function):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def train_step(model, inputs):
    out = model(**inputs)
    loss = out.loss if getattr(out, "loss", None) is not None else out.last_hidden_state.float().square().mean()
    loss.backward()
    model.zero_grad(set_to_none=True)


def compare(title, functions, rounds, turn, unit, scale):
    """functions: by way. scale: of the seconds that one call took, the number that is shown. Returns the row."""
    first = {way: seconds(function) for way, function in functions.items()}
    times = {way: [] for way in functions}
    for number in range(rounds):  # in both orders: processors and the card grow slower as they work
        for way, function in list(functions.items())[::1 if number % 2 else -1]:
            times[way].append(seconds(lambda function=function: [function() for _ in range(turn)]) / turn)
    row = {"what": title, "unit": unit}
    for way in functions:
        row[way], row[f"first {way}"] = scale(statistics.median(times[way])), scale(first[way])
    row["sdpa / fa2"] = statistics.median(times["sdpa"]) / statistics.median(times["fa2"])
    row["least"], _, row["most"] = statistics.quantiles([a / b for a, b in zip(times["sdpa"], times["fa2"])], n=4)
    print(f"{title:48} sdpa {row['sdpa']:9.2f}  fa2 {row['fa2']:9.2f} {unit:9} time of sdpa / fa2 {row['sdpa / fa2']:5.2f} "
          f"[{row['least']:.2f} {row['most']:.2f}]  (first {row['first sdpa']:.2f}, {row['first fa2']:.2f})", flush=True)
    return row


def trained(rounds, only):
    """Rows of training steps, of those whose title has `only` in it."""
    t = transformers
    for title, kind, config, batch, length in (
            ("llama, 16 heads of 4", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED), 4, 2048),
            ("mistral, window 512", t.MistralForCausalLM, t.MistralConfig(**GROUPED, sliding_window=512), 2, 4096),
            ("bert, padding", t.BertModel, t.BertConfig(**{**TEXT, "max_position_embeddings": 512}), 16, 512),
            ("vit, 197 patches", t.ViTModel, t.ViTConfig(hidden_size=1024, num_attention_heads=16,
                                                         intermediate_size=4096), 32, 0)):
        if only not in title:
            continue
        models = make(kind, config)
        if length == 0:
            inputs = {"pixel_values": torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)}
        else:
            inputs = {"input_ids": torch.randint(3, 8000, (batch, length), device="cuda")}
        if kind is t.BertModel:
            lengths = torch.linspace(length // 4, length, batch, device="cuda").long()
            inputs["attention_mask"] = (torch.arange(length, device="cuda") < lengths[:, None]).long()
        elif length:
            inputs.update(labels=inputs["input_ids"], use_cache=False)
        size = f"{batch} of {length}" if length else f"{batch}"
        yield compare(f"{title}: step, {size}",
                      {way: lambda model=model: train_step(model, inputs) for way, model in models.items()},
                      rounds, TURN, "ms", lambda spent: 1e3 * spent)


def generated(rounds, only):
    """Rows of generated texts, likewise."""
    t = transformers
    llama = "llama, 16 heads of 4", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED)
    mistral = "mistral, window 512", t.MistralForCausalLM, t.MistralConfig(**GROUPED, sliding_window=512)
    for (title, kind, config), cache, batch in ((llama, "dynamic", 1), (llama, "dynamic", 16), (llama, "static", 16),
                                                (mistral, "dynamic", 16)):
        title = f"{title}: generate, {batch} behind {PROMPT}, {cache}"
        if only not in title:
            continue
        models = {way: model.eval() for way, model in make(kind, config).items()}
        ids = torch.randint(3, 8000, (batch, PROMPT), device="cuda")
        settings = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
        texts = {}

        def generate(way, models=models, ids=ids, settings=settings, texts=texts):
            texts[way] = models[way].generate(input_ids=ids, max_new_tokens=NEW, do_sample=False, pad_token_id=0,
                                              eos_token_id=None, **settings)

        row = compare(title, {way: lambda way=way: generate(way) for way in WAYS}, rounds, 1, "tokens/s",
                      lambda spent, batch=batch: batch * NEW / spent)
        row["tokens alike"] = (texts["sdpa"][:, PROMPT:] == texts["fa2"][:, PROMPT:]).float().mean().item()
        print(f"    tokens alike: {100 * row['tokens alike']:.1f} %")
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="WORDS", help="what these are in the title of")
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: PyTorch has no GPU here")
        sys.exit(77)
    fa2_attn.transformers.register()
    transformers.logging.set_verbosity_error()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, transformers {transformers.__version__}")
    rows = [*trained(arguments.rounds, arguments.only), *generated(arguments.rounds, arguments.only)]
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list({name: None for row in rows for name in row}))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
