//===- PassNumbersTest.cpp - Stages that read numbers of a loop's pass ----===//

#include "lib/Halide/PassNumbers.h"
#include "lib/Halide/Hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

using namespace attn::lowering;
using Halide::Func;
using Halide::LoopLevel;
using Halide::Pipeline;
using Halide::Var;

namespace {
class PassNumbersTest : public testing::Test {
protected:
  PassNumbersTest() {
    stage(x) = numbers[0] + numbers[1] * x;
    out(x, task) = numbers.before({task}, stage(x));
    numbers.computeAt(LoopLevel(out, task));
  }

  Pipeline lowered() {
    Pipeline pipeline(out);
    checkPassNumbers(pipeline);
    lowerHints(pipeline);
    return pipeline;
  }

  Var x{"x"}, task{"task"};
  PassNumbers numbers{"numbers", {task}, {task * 100, task + 1}};
  Func stage{"a_stage"}, out{"out"};
};
} // namespace

TEST_F(PassNumbersTest, AreThoseOfTheirPass) {
  stage.compute_at(out, task);
  out.parallel(task);
  Halide::Buffer<int> result = lowered().realize({5, 4});
  for (int pass = 0; pass < 4; ++pass)
    for (int at = 0; at < 5; ++at)
      EXPECT_EQ(result(at, pass), pass * 100 + (pass + 1) * at);
}

TEST_F(PassNumbersTest, AreReadNowhereElse) {
  stage.compute_root();
  Pipeline pipeline = lowered();
  try {
    pipeline.compile_to_module({}, "f");
    FAIL() << "the stage is computed before any pass";
  } catch (const std::logic_error &error) {
    EXPECT_THAT(error.what(), testing::MatchesRegex("@numbers.*\\.[01] is read where it is not kept"));
  }
}

TEST_F(PassNumbersTest, ThereMayBeNone) {
  PassNumbers none;
  Halide::Expr value = stage(x);
  EXPECT_TRUE(none.before({task}, value).same_as(value));
  none.computeAt(LoopLevel(out, task));
}
