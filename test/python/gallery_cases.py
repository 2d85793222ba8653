"""What each file of examples/ is tested on: sizes, and the values that its parameters may take.

The pytest gallery draws from this table, and so does the check by attn-run (test/Gallery), which needs no NumPy.
"""

from dataclasses import dataclass, field

# A size for every name, four times. 1, odd numbers, more queries than keys (so causal masks leave rows empty), many keys.
SIZES = [
    dict(A=1, B=1, C=1, D=2, E=1, G=1, H=1, I=1, J=1, K=1, L=1, M=1, N=1, O=1, P=1, Q=1, R=1, S=1, T=1, U=1, X=1, Y=1),
    dict(A=2, B=2, C=3, D=16, E=9, G=2, H=4, I=9, J=7, K=5, L=6, M=7, N=65, O=5, P=7, Q=3, R=8, S=5, T=17, U=9, X=7, Y=5),
    dict(A=1, B=3, C=5, D=6, E=17, G=3, H=6, I=7, J=11, K=4, L=9, M=65, N=63, O=7, P=5, Q=7, R=5, S=3, T=63, U=7, X=5, Y=9),
    dict(A=1, B=1, C=2, D=8, E=33, G=1, H=2, I=13, J=5, K=9, L=33, M=63, N=2001, O=3, P=9, Q=5, R=7, S=7, T=129, U=3, X=9, Y=7),
]


@dataclass(frozen=True)
class Case:
    """An example.

    values: the least and the greatest value of a parameter, as expressions over the sizes; the others are normally distributed,
            fair where bool, and left out where they have a default.
    sizes:  changes to SIZES, one for each.
    fixed:  sizes that are fixed at compile time.
    scale:  a factor to the normally distributed values of a parameter.
    worse:  how many times the usual error is right, where the formula itself magnifies the rounding of a step.
    """

    values: dict = field(default_factory=dict)
    sizes: tuple = ({}, {}, {}, {})
    fixed: dict = field(default_factory=dict)
    scale: dict = field(default_factory=dict)
    worse: float = 1.0

    def sizes_of(self, number):
        return {**SIZES[number], **self.sizes[number], **self.fixed}


CACHE = {"length": ("0", "N")}
CASES = {
    "additive": Case({"valid": ("0", "N")}),
    "alibi": Case({"slope": ("0.0", "0.5")}),
    "attention_sink": Case(),
    "axial": Case(),
    "bilinear": Case(scale={"w": 0.3}),
    "block_sparse": Case(fixed={"S": 4}, sizes=({}, dict(X=2, Y=17), dict(X=17, Y=16), dict(X=16, Y=501))),
    "bmm": Case(),
    "causal": Case(),
    "causal_linear": Case(),
    "chunked": Case({"chunk": ("1", "N")}),
    "concat": Case(),
    "contextual": Case(scale={"q": 0.3}),
    "cosine": Case({"scale": ("1.0", "5.0")}),
    "cross": Case(),
    "decode": Case(CACHE),
    "dense_bias": Case(),
    "differential": Case({"lambda": ("0.0", "1.0")}),
    "dilated": Case({"window": ("1", "9"), "step": ("1", "5")}),
    "documents": Case({"document": ("0", "3")}),
    "dropout": Case({"p": ("0.1", "0.5"), "seed": ("1", "99")}),
    "everything": Case({"slope": ("0.0", "0.1"), "window": ("1", "N + 1")}),
    "gated_pooling": Case(CACHE),
    "gaussian": Case({"width": ("1.0", "2.0")}),
    "graph": Case(),
    "graph_edges": Case(
        {"source": ("0", "N - 1"), "target": ("0", "N - 1")}, sizes=({}, dict(L=300), dict(N=200, L=150), dict(N=9, L=2001))
    ),
    "grouped_query": Case(),
    "hopfield": Case({"beta": ("0.3", "0.6")}),
    "late_interaction": Case({"length": ("1", "N")}),
    "latent": Case(CACHE, scale={"wk": 0.3, "wv": 0.3}),
    "linear": Case(),
    # A centre near 129 is known to 8e-6 only, and so are the distances from it, of which there is a Gaussian.
    "local": Case({"length": ("0", "N if N < 129 else 129"), "radius": ("1.0", "9.0")}, scale={"w": 0.3}, worse=5.0),
    "masked_softmax": Case({"valid": ("0", "N")}),
    "merge": Case(),
    "mha": Case(fixed={"H": 3}, sizes=({}, {}, {}, dict(N=129)), scale={"wq": 0.3, "wk": 0.3}),
    "multi_query": Case(),
    "neighbourhood": Case(
        {"radius": ("1", "2")}, sizes=(dict(I=5, J=5), dict(I=9, J=7), dict(I=7, J=11), dict(I=13, J=5))
    ),
    "paged": Case(
        {"page": ("0", "P - 1"), "length": ("0", "L * S")}, sizes=({}, dict(S=4), dict(S=8), dict(S=16, L=125, P=131))
    ),
    "pair_bias": Case(),
    "partial": Case({"first": ("0", "N // 2"), "last": ("N // 3", "N")}),
    "performer": Case(scale={"q": 0.5, "k": 0.5}),
    "prefix_lm": Case({"prefix": ("0", "M")}),
    "quantised": Case({"k": ("-127", "127"), "v": ("-127", "127"), "k_scale": ("0.004", "0.012"), "v_scale": ("0.004", "0.012")}),
    "ragged": Case({"sequence": ("0", "S - 1"), "start": ("0", "T")}),
    "relative_keys": Case(),
    "relu_attention": Case(),
    # Scores that are not normalised: of both signs, a row of one key may cancel to next to nothing.
    "retention": Case({"gamma": ("0.8", "0.99"), "q": ("0.0", "1.0"), "k": ("0.0", "1.0")}),
    "rotary": Case({"cosine": ("-1.0", "1.0"), "sine": ("-1.0", "1.0")}, sizes=({}, {}, dict(N=65), {})),
    "scaled_dot": Case({"valid": ("0", "N")}),
    "seed_pooling": Case(),
    "selected_blocks": Case(
        {"block": ("0", "(N - 1) // 4")}, fixed={"S": 4}, sizes=(dict(T=1), dict(T=3), dict(T=5), dict(T=7))
    ),
    "sigmoid_attention": Case(),
    "sliding_window": Case({"window": ("1", "N")}),
    "slots": Case(),
    "softcap": Case({"cap": ("1.0", "5.0")}),
    "stick_breaking": Case(),
    "streaming": Case({"first": ("0", "4"), "window": ("1", "9")}),
    "swin": Case(),
    "t5_bias": Case({"bucket": ("0", "K - 1")}, scale={"q": 0.3}),
    "talking_heads": Case(scale={"before": 0.5}),
    "transformer_xl": Case(sizes=({}, {}, dict(N=65), {})),
    "tree": Case({"parent": ("0", "M - 1"), "past": ("0", "N - M if N > M else 0")}, sizes=({}, {}, dict(M=17), {})),
}
