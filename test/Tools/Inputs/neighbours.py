"""Writes a kernel of 15 steps, each of which reads the one before at two places, and the first of them where a table says."""

print("attention neighbours(x: f32[N], at: i32[N]) {\n  x0[n] = x[at[n]]")
for step in range(15):
    print(f"  x{step + 1}[n: N] = x{step}[n - 1] + x{step}[n + 1]")
print("  return x15\n}")
