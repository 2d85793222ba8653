"""What the example kernels compute, written once more in NumPy with float64 and M × N arrays."""

import numpy as np


def softmax(score, mask=None, sink=None):
    """Over the last axis; masked elements weigh exactly 0, and a row with none left is all zeros."""
    mask = np.broadcast_to(True if mask is None else mask, score.shape)
    highest = np.max(score, axis=-1, keepdims=True, initial=-np.inf, where=mask)
    if sink is not None:
        highest = np.maximum(highest, sink)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    weight = np.where(mask, np.exp(np.where(mask, score, highest) - highest), 0.0)
    total = weight.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - highest)
    return weight / np.where(total == 0, 1.0, total)


def logsumexp(score, mask, sink):
    with np.errstate(divide="ignore"):
        total = np.where(mask, np.exp(score), 0.0).sum(-1) + np.exp(sink)
        return np.log(total)


def _double(arrays):
    return [np.asarray(array, np.float64) if np.asarray(array).dtype.kind == "f" else np.asarray(array) for array in arrays]


def _upto(length, count):
    """mask[..., n] = n < length[...]"""
    return np.arange(count) < np.asarray(length)[..., None]


def scaled_dot(q, k, v, valid):
    q, k, v = _double((q, k, v))
    score = np.einsum("bmd,bnd->bmn", q, k) / np.sqrt(q.shape[2])
    weight = softmax(score, _upto(valid, k.shape[1])[:, None])
    return weight @ v, weight


def additive(q, k, v, wq, wk, bias, wv, valid):
    q, k, v, wq, wk, bias, wv = _double((q, k, v, wq, wk, bias, wv))
    hq, hk = q @ wq.T, k @ wk.T + bias
    energy = np.tanh(hq[:, :, None] + hk[:, None]) @ wv
    weight = softmax(energy, _upto(valid, k.shape[1]))
    return weight @ v, weight, energy


def bilinear(q, k, v, w):
    q, k, v, w = _double((q, k, v, w))
    return softmax(q @ w @ k.swapaxes(1, 2)) @ v


def gaussian(q, k, v, width=1.0):
    q, k, v = _double((q, k, v))
    distance = ((q[:, :, None] - k[:, None]) ** 2).sum(-1)
    return softmax(-0.5 * distance / width**2) @ v


def everything(q, k, v, slope, sink, window=1024):
    q, k, v, slope, sink = _double((q, k, v, slope, sink))
    heads, rows, count = q.shape[1], q.shape[2], k.shape[2]
    group = np.arange(heads) // (heads // k.shape[1])
    m, n = np.arange(rows)[:, None], np.arange(count)
    dot = np.einsum("bhmd,bhnd->bhmn", q, k[:, group]) / np.sqrt(q.shape[3])
    score = 30.0 * np.tanh((dot + slope[:, None, None] * (n - m)) / 30.0)
    past = count - rows
    mask = np.broadcast_to((n <= m + past) & (m + past - n < window), score.shape)
    weight = softmax(score, mask, sink[:, None, None])
    return np.einsum("bhmn,bhne->bhme", weight, v[:, group]), logsumexp(score, mask, sink[:, None])


def paged(q, k, v, page, length):
    q, k, v = _double((q, k, v))
    heads, size = q.shape[1], k.shape[1]
    n = np.arange(page.shape[1] * size)
    group = np.arange(heads) // (heads // k.shape[2])
    keys = k[page[:, n // size], n % size][:, :, group]
    values = v[page[:, n // size], n % size][:, :, group]
    score = np.einsum("bhd,bnhd->bhn", q, keys) / np.sqrt(q.shape[2])
    weight = softmax(score, _upto(length, len(n))[:, None])
    return np.einsum("bhn,bnhe->bhe", weight, values)


def bmm(x, y):
    x, y = _double((x, y))
    return x @ y


def sigmoid_attention(q, k, v):
    q, k, v = _double((q, k, v))
    score = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]) - np.log(k.shape[1])
    m, n = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
    return np.where(n <= m, 1.0 / (1.0 + np.exp(-score)), 0.0) @ v


def masked_softmax(x, valid):
    (x,) = _double((x,))
    return softmax(x, _upto(valid, x.shape[2])[:, None])
