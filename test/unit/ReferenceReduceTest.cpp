//===- ReferenceReduceTest.cpp - Reductions and scalar ops ----------------===//

#include "ReferenceFixture.h"

using attn::ReferenceTensor;

/// `kind[n](x[n] where x[n] ≥ 0)`, of floats or integers.
static std::string reduction(llvm::StringRef kind, bool real) {
  std::string type = real ? "f64" : "i64", zero = real ? "0.0" : "0";
  std::string compare = real ? "arith.cmpf uge" : "arith.cmpi sge";
  return "attn.kernel @reduce(%x: !attn.tensor<[N], " + type + ">) { %y = attn.tensor \"y\"() : " + type +
         " { %r = attn.reduce " + kind.str() + "(%n: N) : " + type + " { %0 = attn.read %x[%n] : !attn.tensor<[N], " +
         type + "> attn.yield %0 : " + type + " } where { %0 = attn.read %x[%n] : !attn.tensor<[N], " + type +
         "> %z = arith.constant " + zero + " : " + type + " %c = " + compare + ", %0, %z : " + type +
         " attn.yield %c : i1 } attn.yield %r : " + type + " } attn.return %y : !attn.tensor<[], " + type + "> as " +
         type + " }";
}

TEST_F(ReferenceFixture, ReductionsOfFloats) {
  ReferenceTensor x{{5}, {2, -7, 5, 3, -1}}, none{{2}, {-1, -2}}, empty{{0}, {}}, nan{{3}, {1, std::nan(""), 2}};
  EXPECT_EQ(run(reduction("sum", true), {x})[0], 10);
  EXPECT_EQ(run(reduction("max", true), {x})[0], 5);
  EXPECT_EQ(run(reduction("min", true), {x})[0], 2);
  EXPECT_NEAR(run(reduction("logsumexp", true), {x})[0], std::log(std::exp(2) + std::exp(5) + std::exp(3)), 1e-13);
  for (const ReferenceTensor &nothing : {none, empty}) {
    EXPECT_EQ(run(reduction("sum", true), {nothing})[0], 0);
    EXPECT_EQ(run(reduction("max", true), {nothing})[0], -infinity);
    EXPECT_EQ(run(reduction("min", true), {nothing})[0], infinity);
    EXPECT_EQ(run(reduction("logsumexp", true), {nothing})[0], -infinity);
  }
  for (const char *kind : {"sum", "max", "min", "logsumexp"})
    EXPECT_TRUE(std::isnan(run(reduction(kind, true), {nan})[0])) << kind;
}

TEST_F(ReferenceFixture, ReductionsOfIntegers) {
  ReferenceTensor x{{5}, {2, -7, 5, 3, -1}}, none{{2}, {-1, -2}};
  EXPECT_EQ(run(reduction("sum", false), {x})[0], 10);
  EXPECT_EQ(run(reduction("max", false), {x})[0], 5);
  EXPECT_EQ(run(reduction("min", false), {x})[0], 2);
  EXPECT_EQ(run(reduction("max", false), {none})[0], -0x1p63);
  EXPECT_EQ(run(reduction("min", false), {none})[0], 0x1p63);
}

TEST_F(ReferenceFixture, ReductionOverTwoIndicesInsideAnother) {
  // y[i] = Σ_{j, k < 2} (x[j] · (k + 1) · max_l (x[l] + i))
  std::vector<double> found = run(R"(
    attn.kernel @nested(%x: !attn.tensor<[N], f64>) {
      %y = attn.tensor "y"(%i: 3) : f64 {
        %s = attn.reduce sum(%j: N, %k: 2) : f64 {
          %a = attn.read %x[%j] : !attn.tensor<[N], f64>
          %one = arith.constant 1 : i64
          %k1 = arith.addi %k, %one : i64
          %kf = arith.sitofp %k1 : i64 to f64
          %m = attn.reduce max(%l: N) : f64 {
            %b = attn.read %x[%l] : !attn.tensor<[N], f64>
            %if = arith.sitofp %i : i64 to f64
            %c = arith.addf %b, %if : f64
            attn.yield %c : f64
          }
          %p = arith.mulf %a, %kf : f64
          %q = arith.mulf %p, %m : f64
          attn.yield %q : f64
        }
        attn.yield %s : f64
      }
      attn.return %y : !attn.tensor<[3], f64> as f64
    })",
                                  {{{3}, {1, 4, 2}}});
  EXPECT_EQ(found, (std::vector<double>{7 * 3 * 4, 7 * 3 * 5, 7 * 3 * 6}));
}

TEST_F(ReferenceFixture, ScalarOps) {
  // Each row: an op on a = x[0] and b = x[1], and its value for a = −2.5, b = 0.75.
  double a = -2.5, b = 0.75;
  std::vector<std::pair<std::string, double>> cases = {
      {"arith.addf %a, %b : f64", a + b},
      {"arith.subf %a, %b : f64", a - b},
      {"arith.mulf %a, %b : f64", a * b},
      {"arith.divf %a, %b : f64", a / b},
      {"arith.negf %a : f64", 2.5},
      {"arith.remf %a, %b : f64", -0.25},
      {"arith.maximumf %a, %b : f64", b},
      {"arith.minimumf %a, %b : f64", a},
      {"arith.maxnumf %a, %b : f64", b},
      {"arith.minnumf %a, %b : f64", a},
      {"math.exp %a : f64", std::exp(a)},
      {"math.exp2 %a : f64", std::exp2(a)},
      {"math.log %b : f64", std::log(b)},
      {"math.log2 %b : f64", std::log2(b)},
      {"math.sqrt %b : f64", std::sqrt(b)},
      {"math.rsqrt %b : f64", 1 / std::sqrt(b)},
      {"math.sin %a : f64", std::sin(a)},
      {"math.cos %a : f64", std::cos(a)},
      {"math.tanh %a : f64", std::tanh(a)},
      {"math.erf %a : f64", std::erf(a)},
      {"math.absf %a : f64", 2.5},
      {"math.floor %a : f64", -3},
      {"math.ceil %a : f64", -2},
      {"math.roundeven %a : f64", -2},
      {"math.powf %b, %a : f64", std::pow(b, a)},
      {"math.fpowi %a, %i : f64, i64", -15.625},
      {"math.fma %a, %b, %a : f64", a * b + a},
      {"arith.select %t, %a, %b : f64", a},
      {"arith.sitofp %i : i64 to f64", 3},
      {"arith.sitofp %t : i1 to f64", -1},
      {"arith.uitofp %t : i1 to f64", 1},
  };
  for (auto &[op, expected] : cases)
    EXPECT_EQ(run("attn.kernel @op(%x: !attn.tensor<[2], f64>) { %y = attn.tensor \"y\"() : f64 { "
                  "%zero = arith.constant 0 : i64 %one = arith.constant 1 : i64 %i = arith.constant 3 : i64 "
                  "%t = arith.constant true "
                  "%a = attn.read %x[%zero] : !attn.tensor<[2], f64> %b = attn.read %x[%one] : !attn.tensor<[2], f64> "
                  "%r = " +
                      op + " attn.yield %r : f64 } attn.return %y : !attn.tensor<[], f64> as f64 }",
                  {{{2}, {a, b}}})[0],
              expected)
        << op;
}

TEST_F(ReferenceFixture, ConversionsToNarrowTypesAndBack) {
  // Each row: a conversion of x, what widens it again, the value of x and that of the result.
  std::vector<std::tuple<std::string, std::string, double, double>> cases = {
      {"truncf %x : f64 to bf16", "extf %n : bf16 to f64", 1 + 3 * 0x1p-8, 1 + 0x1p-6},
      {"truncf %x : f64 to f16", "extf %n : f16 to f64", 65520, infinity},
      {"truncf %x : f64 to f32", "extf %n : f32 to f64", 1 + 0x1p-30, 1},
      {"trunci %i : i64 to i8", "extsi %n : i8 to i64", 200, -56},
      {"trunci %i : i64 to i8", "extui %n : i8 to i64", -1, 255},
      {"trunci %i : i64 to i32", "extsi %n : i32 to i64", 0x1p31, -0x1p31},
      {"trunci %i : i64 to i32", "extui %n : i32 to i64", -1, 0x1p32 - 1},
      {"trunci %i : i64 to i1", "extui %n : i1 to i64", -2, 0},
  };
  for (auto &[narrow, widen, x, expected] : cases) {
    std::string type = narrow[5] == 'f' ? "f64" : "i64";
    EXPECT_EQ(run("attn.kernel @narrow(%t: !attn.tensor<[], f64>) { %y = attn.tensor \"y\"() : " + type +
                      " { %x = attn.read %t[] : !attn.tensor<[], f64> %i = arith.fptosi %x : f64 to i64 %n = arith." +
                      narrow + " %r = arith." + widen + " attn.yield %r : " + type +
                      " } attn.return %y : !attn.tensor<[], " + type + "> as " + type + " }",
                  {{{}, {x}}})[0],
              expected)
        << narrow << ", " << widen;
  }
}

TEST_F(ReferenceFixture, IntegerAndLogicalOps) {
  // Each row: an op on a = −7, b = 3, the bools t and f, the float r = −2.5; and its value.
  std::vector<std::pair<std::string, double>> cases = {
      {"arith.addi %a, %b : i64", -4},
      {"arith.subi %a, %b : i64", -10},
      {"arith.muli %a, %b : i64", -21},
      {"arith.andi %a, %b : i64", 1},
      {"arith.ori %a, %b : i64", -5},
      {"arith.xori %a, %b : i64", -6},
      {"arith.shli %a, %b : i64", -56},
      {"arith.shrsi %a, %b : i64", -1},
      {"arith.maxsi %a, %b : i64", 3},
      {"arith.minsi %a, %b : i64", -7},
      {"math.absi %a : i64", 7},
      {"math.ipowi %a, %b : i64", -343},
      {"math.ipowi %b, %a : i64", 0},
      {"arith.fptosi %r : f64 to i64", -2},
      {"arith.extsi %t : i1 to i64", -1},
      {"arith.extui %t : i1 to i64", 1},
      {"arith.select %f, %a, %b : i64", 3},
  };
  for (const char *predicate : {"slt", "sle", "ne", "ugt", "uge"})
    cases.push_back({std::string("arith.cmpi ") + predicate + ", %a, %b : i64", 1});
  for (const char *predicate : {"sgt", "sge", "eq", "ult", "ule"})
    cases.push_back({std::string("arith.cmpi ") + predicate + ", %a, %b : i64", 0});
  for (const char *predicate : {"olt", "ole", "one", "ult", "ule", "une", "ord", "true"})
    cases.push_back({std::string("arith.cmpf ") + predicate + ", %r, %s : f64", 1});
  for (const char *predicate : {"ogt", "oge", "oeq", "ugt", "uge", "ueq", "uno", "false"})
    cases.push_back({std::string("arith.cmpf ") + predicate + ", %r, %s : f64", 0});
  for (const char *predicate : {"ult", "ule", "ugt", "uge", "ueq", "une", "uno"})
    cases.push_back({std::string("arith.cmpf ") + predicate + ", %nan, %s : f64", 1});
  for (const char *predicate : {"olt", "ole", "ogt", "oge", "oeq", "one", "ord"})
    cases.push_back({std::string("arith.cmpf ") + predicate + ", %nan, %s : f64", 0});
  cases.push_back({"arith.trunci %a : i64 to i1", 1});
  cases.push_back({"arith.xori %t, %t : i1", 0});
  cases.push_back({"arith.addi %t, %t : i1", 0});
  cases.push_back({"arith.cmpi slt, %t, %f : i1", 1}); // a signed bit: true is −1
  for (auto &[op, expected] : cases) {
    bool logical = llvm::StringRef(op).starts_with("arith.cmp") || llvm::StringRef(op).ends_with("i1");
    std::string type = logical ? "i1" : "i64";
    EXPECT_EQ(run("attn.kernel @op(%x: !attn.tensor<[], f64>) { %y = attn.tensor \"y\"() : " + type +
                      " { %a = arith.constant -7 : i64 %b = arith.constant 3 : i64 %t = arith.constant true "
                      "%f = arith.constant false %r = arith.constant -2.5 : f64 %s = arith.constant 1.0 : f64 "
                      "%nan = attn.read %x[] : !attn.tensor<[], f64> %o = " +
                      op + " attn.yield %o : " + type + " } attn.return %y : !attn.tensor<[], " + type + "> as " +
                      type + " }",
                  {{{}, {std::nan("")}}})[0],
              expected)
        << op;
  }
}
