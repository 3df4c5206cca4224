"""A small GPT trained through fa2 and through PyTorch's sdpa, from one seed on one text.

    python tests/python/train.py [--steps 300] [--ways eager,checkpoint,compile,ddp] [--tune] [--csv losses.csv]

Needs PyTorch and a GPU; exits with 77 without. Each way is 2 * 300 steps, after what must be compiled: allow five
minutes each on a card of the size of an A100. ddp is DistributedDataParallel on two GPUs, with as many rows on each,
and is left out, which is said, where there is one.

12 layers of 12 heads of 64, 1024 tokens, bf16 autocast; bytes of the text that Python ships in pydoc_data.
Prints for each way both losses, how far the curves (means of 10 steps) are apart, step times and peak memory;
exits with 1 if they are more than 1 % apart.
"""

import argparse
import csv
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
import torch.nn.functional as F
import torch.utils.checkpoint
from pydoc_data.topics import topics
from torch import nn

import fa2_attn as fa2
import fa2_attn.torch

LAYERS, HEADS, DIM, LENGTH, BATCH, WARM, GPUS = 12, 12, 64, 1024, 8, 20, 2
WIDTH = HEADS * DIM


class Layer(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, DIM))
        x = x + self.out(self.attend(qkv).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, attend, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer(attend) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, text):
        x = self.tokens(text) + self.places.weight
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(self.norm(x))


def through_sdpa(qkv):
    q, k, v = (tensor.transpose(1, 2) for tensor in qkv.unbind(2))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def through_fa2(qkv):
    return fa2_attn.torch.attention_packed(qkv, causal=True)


ATTENTIONS = {"sdpa": through_sdpa, "fa2": through_fa2}


def load_text():
    data = "\n".join(topics[name] for name in sorted(topics)).encode()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long().cuda()


def train(name, way, steps, rank=0, ranks=1):
    """(losses, of all ranks together, seconds of each step, peak bytes)."""
    text = load_text()
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Model(ATTENTIONS[name], way == "checkpoint").cuda()
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    run = torch.compile(model) if way == "compile" else model
    places = torch.Generator().manual_seed(1)
    losses, times = [], []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        begins = torch.randint(len(text) - LENGTH - 1, (ranks, BATCH), generator=places)[rank].tolist()
        rows = torch.stack([text[begin:begin + LENGTH + 1] for begin in begins])
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(run(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        losses.append(loss.detach())
    losses = torch.stack(losses)
    if ranks > 1:
        torch.distributed.all_reduce(losses, torch.distributed.ReduceOp.AVG)
    return losses.tolist(), times, torch.cuda.max_memory_allocated()


def train_rank(rank, folder, name, steps):
    """A process of its own."""
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", f"file://{folder}/meeting", rank=rank, world_size=GPUS)
    found = train(name, "ddp", steps, rank, GPUS)
    if rank == 0:
        torch.save(found, f"{folder}/found")
    torch.distributed.destroy_process_group()


def train_distributed(name, steps):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train_rank, (folder, name, steps), GPUS)
        return torch.load(f"{folder}/found")


def smooth(losses):
    return [statistics.fmean(losses[i:i + 10]) for i in range(len(losses) - 9)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ways", default="eager,checkpoint,compile,ddp")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: PyTorch has no GPU here")
        sys.exit(77)
    if arguments.tune:
        shape = {"batch": BATCH, "heads_q": HEADS, "seq_q": LENGTH, "head_dim": DIM, "causal": 1, "dtype": "bf16"}
        begin = time.time()
        fa2.tune([shape, {**shape, "op": "backward"}], progress=lambda line: None)
        print(f"tuned in {time.time() - begin:.1f} s")
    print(f"{len(load_text())} bytes of text; {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    curves, apart = {}, 0.0
    for way in arguments.ways.split(","):
        if way == "ddp" and torch.cuda.device_count() < GPUS:
            print(f"{way:10} skipped: there are fewer than {GPUS} GPUs")
            continue
        for name in ATTENTIONS:
            losses, times, peak = (train_distributed(name, arguments.steps) if way == "ddp"
                                   else train(name, way, arguments.steps))
            curves[f"{name} {way}"] = losses
            print(f"{way:10} {name:5} loss {losses[0]:.4f} to {statistics.fmean(losses[-10:]):.4f}, step "
                  f"{1e3 * statistics.median(times[WARM:]):.2f} ms, peak {peak / 2**20:.0f} MiB", flush=True)
        ours, theirs = (smooth(curves[f"{name} {way}"]) for name in ("fa2", "sdpa"))
        furthest = max(abs(a - b) / b for a, b in zip(ours, theirs))
        print(f"{way:10} curves are at most {100 * furthest:.3f} % apart")
        apart = max(apart, furthest)
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", *curves])
            writer.writerows([i, *values] for i, values in enumerate(zip(*curves.values())))
    sys.exit(apart > 0.01)


if __name__ == "__main__":
    main()
