"""Attention in Python's own numbers, and whether an answer is as good as it."""

import math
import random

import fa2_attn as fa2
from device import Tensor


def tensors(batch=1, heads_q=2, heads_kv=None, seq_q=40, seq_k=None, head_dim=16, dtype="fp16", device=0,
            kind=Tensor, seed=1):
    """q, k, v [B, S, H, D] with normal values."""
    heads_kv, seq_k = heads_kv or heads_q, seq_k or seq_q
    rng = random.Random(seed)

    def make(seq, heads):
        made = kind((batch, seq, heads, head_dim), dtype, device)
        return made.set([rng.gauss(0, 1) for _ in range(batch * seq * heads * head_dim)])

    return make(seq_q, heads_q), make(seq_k, heads_kv), make(seq_k, heads_kv)


def in_int8(tensor, sizes=None):
    """A tensor [B, S, H, D] as int8 and float32 [B, S, H], and the same as float32. sizes: of the scales, where 1
    shares them."""
    batch, seq, heads, dim = tensor.shape
    sizes = sizes or (batch, seq, heads)
    values, keys = tensor.get(), [(b % sizes[0], i % sizes[1], h % sizes[2])
                                  for b in range(batch) for i in range(seq) for h in range(heads)]
    most = {}
    for number, key in enumerate(keys):
        most[key] = max(most.get(key, 1e-3), *(abs(x) for x in values[number * dim:(number + 1) * dim]))
    scales = Tensor(sizes, "fp32").set([most[b, i, h] / 127 for b in range(sizes[0]) for i in range(sizes[1])
                                        for h in range(sizes[2])])
    rounded = [round(x * 127 / most[keys[place // dim]]) for place, x in enumerate(values)]
    meant = [x * most[keys[place // dim]] / 127 for place, x in enumerate(rounded)]
    return Tensor(tensor.shape, "int8").set(rounded), scales, Tensor(tensor.shape, "fp32").set(meant)


def e4m3(byte):
    """The number of an e4m3 byte."""
    exponent, digits = byte >> 3 & 15, byte & 7
    size = digits * 2.0 ** -9 if exponent == 0 else (8 + digits) * 2.0 ** (exponent - 10)
    return -size if byte & 0x80 else size


def attention(q, k, v, causal=False, window=(-1, -1), softcap=0.0, scale=None, alibi_slopes=None, sinks=None,
              bias=None, factors=None):
    """(out, lse) as flat lists of [B, S, H, D] and [B, H, S]. alibi_slopes, sinks, bias: tensors; bias of full shape.
    factors: of the softmax's elements, [B, H, Sq, Sk]: what dropout makes of them."""
    batch, seq_q, heads_q, dim = q.shape
    _, seq_k, heads_kv, _ = k.shape
    scale = scale or 1 / math.sqrt(dim)
    qs, ks, vs = q.get(), k.get(), v.get()
    slopes = alibi_slopes.get() if alibi_slopes else [0.0]
    sink_of = sinks.get() if sinks else [-math.inf] * heads_q
    biases = bias.get() if bias else []

    def rows(values, b, h, seq, heads):
        return [values[((b * seq + i) * heads + h) * dim:][:dim] for i in range(seq)]

    out, lse = [0.0] * len(qs), []
    for b in range(batch):
        for h in range(heads_q):
            keys = rows(ks, b, h * heads_kv // heads_q, seq_k, heads_kv)
            values = rows(vs, b, h * heads_kv // heads_q, seq_k, heads_kv)
            for i, query in enumerate(rows(qs, b, h, seq_q, heads_q)):
                place = i + seq_k - seq_q
                first = 0 if window[0] < 0 else max(0, place - window[0])
                last = place if causal else seq_k - 1 if window[1] < 0 else place + window[1]
                seen = range(first, min(last, seq_k - 1) + 1)
                scores = [scale * sum(x * y for x, y in zip(query, keys[j])) for j in seen]
                if softcap:
                    scores = [softcap * math.tanh(score / softcap) for score in scores]
                slope = slopes[(b * heads_q + h) % len(slopes)]
                added = biases[((b * heads_q + h) * seq_q + i) * seq_k:] if bias else [0.0] * seq_k
                scores = [score - slope * abs(place - j) + added[j] for score, j in zip(scores, seen)]
                most = max([*scores, sink_of[h]]) if scores or sinks else 0.0
                weights = [math.exp(score - most) for score in scores]
                total = sum(weights) + math.exp(sink_of[h] - most)
                lse.append(most + math.log(total) if total else -math.inf)
                if factors:
                    row = ((b * heads_q + h) * seq_q + i) * seq_k
                    weights = [weight * factors[row + j] for weight, j in zip(weights, seen)]
                at = ((b * seq_q + i) * heads_q + h) * dim
                for d in range(dim if total else 0):
                    out[at + d] = sum(w * values[j][d] for w, j in zip(weights, seen)) / total
    return out, lse


def gradients(d_out, q, k, v, causal=False, window=(-1, -1), softcap=0.0, scale=None, alibi_slopes=None, sinks=None,
              bias=None, factors=None):
    """(dq, dk, dv, dsinks, dbias) as flat lists; dbias of full shape."""
    batch, seq_q, heads_q, dim = q.shape
    _, seq_k, heads_kv, _ = k.shape
    scale = scale or 1 / math.sqrt(dim)
    qs, ks, vs, dos = q.get(), k.get(), v.get(), d_out.get()
    dqs, dks, dvs = [0.0] * len(qs), [0.0] * len(ks), [0.0] * len(vs)
    out, lse = attention(q, k, v, causal, window, softcap, scale, alibi_slopes, sinks, bias, factors)
    slopes, biases = alibi_slopes.get() if alibi_slopes else [0.0], bias.get() if bias else []
    dbias = [0.0] * len(biases)
    sink_of, dsinks = sinks.get() if sinks else [-math.inf] * heads_q, [0.0] * heads_q
    for b in range(batch):
        for h in range(heads_q):
            kv = h * heads_kv // heads_q
            for i in range(seq_q):
                at, place = ((b * seq_q + i) * heads_q + h) * dim, i + seq_k - seq_q
                first = 0 if window[0] < 0 else max(0, place - window[0])
                last = place if causal else seq_k - 1 if window[1] < 0 else place + window[1]
                delta = sum(x * y for x, y in zip(dos[at:at + dim], out[at:at + dim]))
                row_lse = lse[(b * heads_q + h) * seq_q + i]
                dsinks[h] -= math.exp(sink_of[h] - row_lse) * delta if sinks else 0.0
                for j in range(first, min(last, seq_k - 1) + 1):
                    key = ((b * seq_k + j) * heads_kv + kv) * dim
                    score, slope = scale * sum(x * y for x, y in zip(qs[at:at + dim], ks[key:key + dim])), 1.0
                    if softcap:
                        score = softcap * math.tanh(score / softcap)
                        slope = 1 - (score / softcap) ** 2
                    score -= slopes[(b * heads_q + h) % len(slopes)] * abs(place - j)
                    score += biases[((b * heads_q + h) * seq_q + i) * seq_k + j] if bias else 0.0
                    p = math.exp(score - row_lse)
                    factor = factors[((b * heads_q + h) * seq_q + i) * seq_k + j] if factors else 1.0
                    d_p = factor * sum(x * y for x, y in zip(dos[at:at + dim], vs[key:key + dim]))
                    if bias:
                        dbias[((b * heads_q + h) * seq_q + i) * seq_k + j] = p * (d_p - delta)
                    ds = p * (d_p - delta) * slope * scale
                    for d in range(dim):
                        dvs[key + d] += p * factor * dos[at + d]
                        dqs[at + d] += ds * ks[key + d]
                        dks[key + d] += ds * qs[at + d]
    return dqs, dks, dvs, dsinks, dbias


def dropped(q, k, p, seed, offset=0):
    """factors of a dropout: 1 / (1 - p) where an element is kept, else 0."""
    kept = fa2.dropout_mask(fa2.problem(q, k, k, dropout_p=p), p, seed, offset)
    return [one / (1 - p) for one in kept]


def worst(got, wanted):
    """The largest difference; infinite where something is no number."""
    if len(got) != len(wanted):
        return math.inf
    most = 0.0
    for a, b in zip(got, wanted):
        difference = 0.0 if a == b else abs(a - b)
        most = math.inf if math.isnan(difference) else max(most, difference)
    return most


# Three roundings of values around 1: of P, of the sum, of O.
TOLERANCE = {"fp16": 3 * 2.0 ** -10, "bf16": 3 * 2.0 ** -7, "fp32": 2.0 ** -18}
