"""Prints a spec of which each statement uses the one before twice."""

print("attention chain(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {\n  t0[m, n] = sum[d](q[m, d] * k[n, d])")
for number in range(1, 101):
    print(f"  t{number}[m, n] = t{number - 1}[m, n] * sigmoid(t{number - 1}[m, n])")
print("  weight[m, n] = softmax[n](t100[m, n])\n  out[m, e] = sum[n](weight[m, n] * v[n, e])\n  return out\n}")
