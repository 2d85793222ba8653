// Compiles an attention when the program runs, and runs it: averages of the values of two sequences, of which 2 and 6
// keys are valid.

#include <attn/Compiler/Compiler.h>

#include <cstdio>

static const char *const source = R"(
attention scaled_dot(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], valid: i32[B]) {
  score[b, m, n]  = sum[d](q[b, m, d] * k[b, n, d]) / sqrt(D)
  weight[b, m, n] = softmax[n](score[b, m, n] where n < valid[b])
  out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e])
  return out
}
)";

// A row-major tensor over memory of the caller's.
static DLTensor tensor(void *data, uint8_t code, std::vector<int64_t> &shape) {
  return {data, {kDLCPU, 0}, int32_t(shape.size()), {code, 32, 1}, shape.data(), nullptr, 0};
}

int main() {
  std::vector<float> q(2 * 1 * 2, 1), k(2 * 10 * 2, 1), v(2 * 10 * 4), out(2 * 1 * 4);
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = float(i % 40);
  int32_t valid[] = {2, 6};
  std::vector<int64_t> qShape = {2, 1, 2}, kShape = {2, 10, 2}, vShape = {2, 10, 4}, validShape = {2},
                       outShape = {2, 1, 4};
  DLTensor qTensor = tensor(q.data(), kDLFloat, qShape), kTensor = tensor(k.data(), kDLFloat, kShape),
           vTensor = tensor(v.data(), kDLFloat, vShape), validTensor = tensor(valid, kDLInt, validShape),
           outTensor = tensor(out.data(), kDLFloat, outShape);
  try {
    attn::Kernel kernel = attn::compile(source);
    kernel.run({&qTensor, &kTensor, &vTensor, &validTensor}, {&outTensor});
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  for (float value : out)
    std::printf("%g ", value);
  std::printf("\n");
}
