"""What the gallery's kernels compute, written from their formulas in NumPy with float64 and M × N arrays.

formulas.py has the first examples; here are the others. Arguments have the names of the kernel's parameters.
"""

import numpy as np
from formulas import softmax


def logsumexp(score, mask=True):
    with np.errstate(divide="ignore"):
        return np.log(np.where(mask, np.exp(score), 0.0).sum(-1))


def dot(q, k):
    """q kᵀ / √D"""
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def grid(q, k):
    """Query and key numbers, to compare with each other."""
    return np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])[None, :]


def shifted(q, k):
    """The same, with the last query beside the last key."""
    m, n = grid(q, k)
    return m + k.shape[-2] - q.shape[-2], n


def attend(score, v, mask=None, sink=None):
    return softmax(score, mask, sink) @ v


def of_group(q, k):
    """The key heads that the query heads see, on axis 1."""
    return k[:, np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])]


# Masks


def causal(q, k, v):
    m, n = shifted(q, k)
    return attend(dot(q, k), v, n <= m)


def sliding_window(q, k, v, window=256):
    m, n = shifted(q, k)
    return attend(dot(q, k), v, (n <= m) & (m - n < window))


def streaming(q, k, v, first=4, window=256):
    m, n = shifted(q, k)
    return attend(dot(q, k), v, (n <= m) & ((n < first) | (m - n < window)))


def chunked(q, k, v, chunk=8192):
    m, n = grid(q, k)
    return attend(dot(q, k), v, (n <= m) & (m // chunk == n // chunk))


def documents(q, k, v, document):
    m, n = grid(q, k)
    return attend(dot(q, k), v, ((n <= m) & (document[:, :, None] == document[:, None, :]))[:, None])


def ragged(q, k, v, sequence, start):
    out = np.zeros(v.shape)
    for first, last in zip(start[:-1], start[1:]):
        part = slice(first, last)
        q1, k1, v1 = (x[part].swapaxes(0, 1) for x in (q, k, v))
        out[part] = attend(dot(q1, k1), v1).swapaxes(0, 1)
    return out


def prefix_lm(q, k, v, prefix):
    m, n = grid(q, k)
    return attend(dot(q, k), v, (n <= m) | (n < prefix[:, None, None, None]))


def dilated(q, k, v, window=64, step=4):
    m, n = grid(q, k)
    seen = np.zeros((q.shape[-2], k.shape[-2]), bool)
    for back in range(window):
        seen |= n == m - back * step
    return attend(dot(q, k), v, seen)


def block_sparse(q, k, v, table, S):
    whole = np.kron(table, np.ones((S, S), bool)).astype(bool)
    return attend(dot(q, k), v, whole[: q.shape[-2], : k.shape[-2]])


def tree(q, k, v, parent, past):
    batch, count = parent.shape
    mask = np.zeros((batch, 1, count, k.shape[-2]), bool)
    for b in range(batch):
        mask[b, 0, :, : past[b]] = True
        for m in range(count):
            token = m
            for _ in range(4):
                if past[b] + token < k.shape[-2]:
                    mask[b, 0, m, past[b] + token] = True
                token = parent[b, token]
    return attend(dot(q, k), v, mask)


def neighbourhood(q, k, v, radius=3):
    batch, height, width, _ = q.shape
    out = np.zeros(v.shape)
    side = 2 * radius + 1
    for i in range(height):
        for j in range(width):
            top, left = (min(max(x - radius, 0), size - side) for x, size in ((i, height), (j, width)))
            keys, values = (x[:, top : top + side, left : left + side].reshape(batch, side**2, -1) for x in (k, v))
            out[:, i, j] = attend(dot(q[:, i, j, None], keys), values)[:, 0]
    return out


def graph(x, source, target, edge):
    s = (x * source).sum(-1)[:, None] + (x * target).sum(-1)[None]
    score = np.where(s > 0, s, 0.2 * s).transpose(2, 0, 1)
    return attend(score, x.swapaxes(0, 1), edge).swapaxes(0, 1)


def graph_edges(x, source, target, **parts):
    score = (x * parts["from"]).sum(-1)[source] + (x * parts["to"]).sum(-1)[target]
    score = np.where(score > 0, score, 0.2 * score).T
    out = np.zeros(x.shape)
    for node in range(len(x)):
        leads = target == node
        if leads.any():
            out[node] = attend(score[:, None, leads], x[source[leads]].swapaxes(0, 1))[:, 0]
    return out


# Positions and biases


def alibi(q, k, v, slope):
    m, n = shifted(q, k)
    return attend(dot(q, k) - slope[:, None, None] * (m - n), v, n <= m)


def rotary(q, k, v, cosine, sine):
    def turned(x, start):
        first, second = np.split(x, 2, axis=-1)
        rotation = (cosine + 1j * sine)[start : start + x.shape[-2]]
        result = (first + 1j * second) * rotation
        return np.concatenate([result.real, result.imag], -1)

    m, n = shifted(q, k)
    return attend(dot(turned(q, k.shape[-2] - q.shape[-2]), turned(k, 0)), v, n <= m)


def t5_bias(q, k, v, bias, bucket):
    return attend(q @ k.swapaxes(-1, -2) + bias[:, bucket], v)


def dense_bias(q, k, v, bias):
    return attend(dot(q, k) + bias, v, np.isfinite(bias))


def pair_bias(q, k, v, pair, w, gate):
    return sigmoid(gate) * attend(dot(q, k) + np.einsum("hc,mnc->hmn", w, pair), v)


def swin(q, k, v, table):
    side = (table.shape[1] + 1) // 2
    row, column = (x.ravel() for x in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    bias = table[:, row[:, None] - row + side - 1, column[:, None] - column + side - 1]
    return attend(dot(q, k) + bias, v)


def relative_keys(q, k, v, rk, rv):
    m, n = grid(q, k)
    furthest = (len(rk) - 1) // 2
    step = np.clip(n - m, -furthest, furthest) + furthest
    weight = softmax((q @ k.swapaxes(-1, -2) + np.einsum("bhmd,mnd->bhmn", q, rk[step])) / np.sqrt(q.shape[-1]))
    return weight @ v + np.einsum("bhmn,mne->bhme", weight, rv[step])


def transformer_xl(q, k, v, r, content, position):
    m, n = shifted(q, k)
    by_content = (q + content[:, None]) @ k.swapaxes(-1, -2)
    by_distance = (q + position[:, None]) @ r.swapaxes(-1, -2)
    distance = np.broadcast_to(np.clip(m - n, 0, None), by_content.shape)
    score = by_content + np.take_along_axis(by_distance, distance, -1)
    return attend(score / np.sqrt(q.shape[-1]), v, n <= m)


# Scores


def softcap(q, k, v, cap=50.0):
    m, n = shifted(q, k)
    return attend(cap * np.tanh(dot(q, k) / cap), v, n <= m)


def cosine(q, k, v, scale):
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    return attend(scale[:, None, None] * (q @ k.swapaxes(-1, -2)), v)


def concat(q, k, v, w, wv):
    m, n = q.shape[1], k.shape[1]
    both = np.concatenate([np.repeat(q[:, :, None], n, 2), np.repeat(k[:, None], m, 1)], -1)
    return attend(np.tanh(both @ w.T) @ wv, v)


def local(q, k, v, w, wp, vp, length, radius=10.0):
    centre = length[:, None] * sigmoid(np.tanh(q @ wp.T) @ vp)
    n = np.arange(k.shape[1])
    distance = n - centre[..., None]
    weight = softmax(q @ w @ k.swapaxes(1, 2), (np.abs(distance) <= radius) & (n < length[:, None, None]))
    return (weight * np.exp(-(distance**2) / (2 * (radius / 2) ** 2))) @ v, centre


def hopfield(state, pattern, beta=1.0):
    return attend(beta * state @ pattern.T, pattern)


def attention_sink(q, k, v, sink):
    m, n = shifted(q, k)
    return attend(dot(q, k), v, n <= m, sink[:, None, None])


def cross(q, k, v, keep):
    return attend(dot(q, k), v, keep[:, None, None])


# Heads


def grouped_query(q, k, v):
    return causal(q, of_group(q, k), of_group(q, v))


def multi_query(q, k, v):
    return causal(q, k[:, None], v[:, None])


def talking_heads(q, k, v, before, after):
    weight = softmax(np.einsum("hg,bgmn->bhmn", before, dot(q, k)))
    return np.einsum("hg,bgmn->bhmn", after, weight) @ v


def differential(q, k, v, **scalars):
    m, n = shifted(q, k)
    first, second = (softmax(dot(q[:, :, i], k[:, :, i]), n <= m) for i in (0, 1))
    return (first - scalars["lambda"][:, None, None] * second) @ v


# Caches and serving


def decode(q, k, v, length):
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    for b, count in enumerate(length):
        keys, values = (of_group(q, x[b : b + 1, :count].swapaxes(1, 2))[0] for x in (k, v))
        out[b] = attend(dot(q[b, :, None], keys), values)[:, 0]
    return out


def latent(q, qr, c, kr, wk, wv, length):
    """Not absorbed: keys and values of every head are unpacked from the latent vectors first."""
    k = np.einsum("bnl,hld->bhnd", c, wk)
    v = np.einsum("bnl,hle->bhne", c, wv)
    score = np.einsum("bhd,bhnd->bhn", q, k) + np.einsum("bhr,bnr->bhn", qr, kr)
    weight = softmax(score / np.sqrt(q.shape[-1] + qr.shape[-1]), (np.arange(c.shape[1]) < length[:, None])[:, None])
    return np.einsum("bhn,bhne->bhe", weight, v)


def quantised(q, k, v, k_scale, v_scale):
    return attend(dot(q, of_group(q, k * k_scale[..., None])), of_group(q, v * v_scale[..., None]))


def selected_blocks(q, k, v, block, S):
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    past, group = k.shape[2] - q.shape[2], q.shape[1] // k.shape[1]
    for b, h, m in np.ndindex(*q.shape[:3]):
        place = (block[b, h // group, m][:, None] * S + np.arange(S)).ravel()
        place = place[place <= m + past]
        if len(place):
            keys, values = k[b, h // group, place], v[b, h // group, place]
            out[b, h, m] = attend(dot(q[b, h, m, None], keys), values)[0]
    return out


def partial(q, k, v, first, last):
    n = np.arange(k.shape[2])
    mask = ((first[:, None] <= n) & (n < last[:, None]))[:, None, None]
    return attend(dot(q, k), v, mask), logsumexp(dot(q, k), mask)


def merge(part, lse):
    total = logsumexp(np.moveaxis(lse, 0, -1))
    share = np.where(np.isfinite(lse), np.exp(lse - np.where(np.isfinite(total), total, 0.0)), 0.0)
    return (share[..., None] * part).sum(0), total


# Without a softmax over keys


def linear(q, k, v):
    q, k = (np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1 for x in (q, k))
    weight = q @ k.swapaxes(-1, -2)
    return weight / weight.sum(-1, keepdims=True) @ v


def causal_linear(q, k, v):
    q, k = (np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1 for x in (q, k))
    weight = np.tril(q @ k.swapaxes(-1, -2))
    return weight @ v / weight.sum(-1, keepdims=True)


def performer(q, k, v, w):
    q, k = (x / x.shape[-1] ** 0.25 for x in (q, k))
    q, k = (np.exp(x @ w.T - (x**2).sum(-1, keepdims=True) / 2) for x in (q, k))
    weight = q @ k.swapaxes(-1, -2)
    return weight / weight.sum(-1, keepdims=True) @ v


def retention(q, k, v, gamma):
    """In its recurrent form: state = γ state + kᵀ v, out = q state."""
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    state = np.zeros((*q.shape[:2], q.shape[-1], v.shape[-1]))
    for m in range(q.shape[2]):
        state = gamma[:, None, None] * state + k[:, :, m, :, None] * v[:, :, m, None, :]
        out[:, :, m] = np.einsum("bhd,bhde->bhe", q[:, :, m], state)
    return out


def from_last(x):
    """Sums over the last axis, each from its element on."""
    return np.flip(np.cumsum(np.flip(x, -1), -1), -1)


def stick_breaking(q, k, v):
    m, n = grid(q, k)
    left = np.where(n < m, -np.logaddexp(0, dot(q, k)), 0.0)
    return np.where(n < m, sigmoid(dot(q, k)) * np.exp(from_last(left) - left), 0.0) @ v


def contextual(q, k, v, table):
    m, n = grid(q, k)
    dots = q @ k.swapaxes(-1, -2)
    position = np.minimum(from_last(np.where(n <= m, sigmoid(dots), 0.0)), table.shape[0] - 1)
    low, high = np.floor(position).astype(int), np.ceil(position).astype(int)
    at = q @ table.T
    bias = np.take_along_axis(at, low, -1) * (1 - position + low) + np.take_along_axis(at, high, -1) * (position - low)
    return softmax(np.where(n <= m, dot(q, k) + bias, -np.inf)) @ v


def relu_attention(q, k, v):
    return np.maximum(dot(q, k), 0) @ v / k.shape[-2]


def late_interaction(q, k, length):
    score = np.zeros((len(q), len(k)))
    for c, count in enumerate(length):
        score[:, c] = np.einsum("bmd,nd->bmn", q, k[c, :count]).max(-1).sum(-1)
    return score


def slots(q, k, v):
    share = softmax(dot(q, k).swapaxes(1, 2)).swapaxes(1, 2)
    return share @ v / (share.sum(-1, keepdims=True) + 1e-8)


# Whole layers and pooling


def axial(q, k, v):
    return attend(dot(q, k), v)


def seed_pooling(seed, k, v, keep):
    return attend(dot(seed, k), v, keep[:, None, None])


def gated_pooling(x, wv, wu, w, length):
    score = (np.tanh(x @ wv.T) * sigmoid(x @ wu.T)) @ w
    weight = softmax(score, np.arange(x.shape[1]) < length[:, None])
    return np.einsum("bn,bnd->bd", weight, x), weight


def mha(x, wq, wk, wv, wo, bq, bk, bv, bo, keep, head_mask, H):
    def heads(weight, bias):
        return (x @ weight.T + bias).reshape(*x.shape[:2], H, -1).swapaxes(1, 2)

    weight = softmax(dot(heads(wq, bq), heads(wk, bk)), keep[:, None, None])
    context = (weight * head_mask[:, None, None]) @ heads(wv, bv)
    return context.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ wo.T + bo, weight
