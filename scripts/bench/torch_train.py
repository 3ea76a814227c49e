"""The peer of `bun run bench engine --device cpu`: the same decoder in plain PyTorch, float32, on the CPU.

A server on standard input, so that runs can be interleaved with ours: each line `train S STEPS`, `forward S STEPS` or `decode S BATCH TOKENS`
is answered by one JSON line with the rate in tokens a second. Threads: TORCH_THREADS (default: all cores). Run with Debian's python3-torch:
    echo "train S 2" | /usr/bin/python3 scripts/bench/torch_train.py
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(os.environ.get("TORCH_THREADS", os.cpu_count())))

SIZES = {
    "S": dict(layers=4, C=256, ff=768, H=4, K=2, V=4096, T=512, B=8),
    "M": dict(layers=8, C=512, ff=1536, H=8, K=4, V=8192, T=1024, B=4),
}


def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Decoder(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        C, ff, H, K = s["C"], s["ff"], s["H"], s["K"]
        D = self.D = C // H
        new = lambda *shape: torch.nn.Parameter(torch.randn(*shape) * 0.02)
        one = lambda n: torch.nn.Parameter(torch.ones(n))
        self.embed = new(s["V"], C)
        self.final = one(C)
        self.layers = torch.nn.ModuleList()
        for _ in range(s["layers"]):
            l = torch.nn.Module()
            l.n1, l.n2, l.qn, l.kn = one(C), one(C), one(D), one(D)
            l.q, l.k, l.v, l.o = new(H * D, C), new(K * D, C), new(K * D, C), new(C, H * D)
            l.gate, l.up, l.down = new(ff, C), new(ff, C), new(C, ff)
            self.layers.append(l)
        angle = torch.arange(2 * s["T"])[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, ids, cache=None, position=0):
        s, D = self.s, self.D
        B, T = ids.shape
        H, K = s["H"], s["K"]
        cos, sin = self.cos[position : position + T], self.sin[position : position + T]
        x = F.embedding(ids, self.embed)
        mask = torch.full((T, T), float("-inf")).triu(1) if T > 1 else None
        for i, l in enumerate(self.layers):
            n = norm(x, l.n1)
            q = rotate(norm(F.linear(n, l.q).view(B, T, H, D), l.qn).transpose(1, 2), cos, sin)
            k = rotate(norm(F.linear(n, l.k).view(B, T, K, D), l.kn).transpose(1, 2), cos, sin)
            v = F.linear(n, l.v).view(B, T, K, D).transpose(1, 2)
            if cache is not None:
                cache[i][0][:, :, position : position + T] = k
                cache[i][1][:, :, position : position + T] = v
                k, v = cache[i][0][:, :, : position + T], cache[i][1][:, :, : position + T]
            k, v = k.repeat_interleave(H // K, 1), v.repeat_interleave(H // K, 1)
            a = q @ k.transpose(2, 3) * D**-0.5
            if mask is not None:
                a = a + mask
            x = x + F.linear((a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * D), l.o)
            n = norm(x, l.n2)
            x = x + F.linear(F.silu(F.linear(n, l.gate)) * F.linear(n, l.up), l.down)
        return norm(x, self.final)


models = {}


def model_of(size):
    if size not in models:
        torch.manual_seed(0)
        model = Decoder(SIZES[size])
        models[size] = (model, torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1))
    return models[size]


def tokens_of(size):
    s = SIZES[size]
    return torch.randint(0, s["V"], (s["B"], s["T"] + 1), generator=torch.Generator().manual_seed(1))


def train(size, steps):
    model, optimizer = model_of(size)
    data = tokens_of(size)
    start = time.perf_counter()
    for _ in range(steps):
        x = model(data[:, :-1])
        loss = F.cross_entropy(F.linear(x, model.embed).flatten(0, 1), data[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
    return steps * SIZES[size]["B"] * SIZES[size]["T"] / (time.perf_counter() - start)


def forward(size, steps):
    model, _ = model_of(size)
    data = tokens_of(size)
    with torch.no_grad():
        start = time.perf_counter()
        for _ in range(steps):
            logits = F.linear(model(data[:, :-1]), model.embed)
            F.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten(), reduction="none").sum().item()
        return steps * SIZES[size]["B"] * SIZES[size]["T"] / (time.perf_counter() - start)


def decode(size, batch, tokens):
    model, _ = model_of(size)
    s = SIZES[size]
    length = 16 + tokens
    cache = [[torch.zeros(batch, s["K"], length, model.D) for _ in "kv"] for _ in range(s["layers"])]
    with torch.no_grad():
        x = model(torch.randint(0, s["V"], (batch, 16)), cache, 0)
        start = time.perf_counter()
        for i in range(tokens):
            ids = torch.multinomial(F.linear(x[:, -1], model.embed).softmax(-1), 1)
            x = model(ids, cache, 16 + i) if i + 1 < tokens else x
        return batch * tokens / (time.perf_counter() - start)


for line in sys.stdin:
    what, size, *numbers = line.split()
    rate = {"train": train, "forward": forward, "decode": decode}[what](size, *map(int, numbers))
    print(json.dumps({"rate": rate, "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
