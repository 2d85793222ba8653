//===- AttnRunArgumentsTest.cpp - attn-run's command line and inputs ------===//

#include "tools/attn-run/Inputs.h"

#include "gtest/gtest.h"

using namespace attn;
using namespace attn::run;

static const std::vector<TensorInfo> parameters = {{"q", "f32", {"B", "M"}, {}},
                                                   {"valid", "i32", {"B"}, {}},
                                                   {"width", "f32", {}, 1.0},
                                                   {"window", "i32", {}, 4.0},
                                                   {"causal", "bool", {}, 0.0}};

/// The message that these words after `attn-run x.attn` lead to.
static std::string errorOf(std::vector<std::string> words) {
  words.insert(words.begin(), "x.attn");
  try {
    makeInputs(parameters, parseArguments(words));
  } catch (const Failure &failure) {
    return failure.what();
  }
  return "no error";
}

static const std::vector<std::string> enough = {"--random", "q=2x3", "--random=valid=2:0..3"};

static std::string errorWith(std::string option, std::string value) {
  std::vector<std::string> words = enough;
  words.push_back(std::move(option));
  words.push_back(std::move(value));
  return errorOf(words);
}

TEST(AttnRunArguments, Everything) {
  Arguments arguments =
      parseArguments({"--check", "a.attn",   "--input",     "q=q.npy",       "--input=w=0.5", "--random",
                      "k=2x8",   "--output", "out=o.npy",   "--set",         "D=64",          "--kernel=fast",
                      "--dtype", "bf16",     "--tolerance", "1e-3",          "--threads",     "3",
                      "--seed",  "9",        "--time",      "--check-bounds"});
  EXPECT_EQ(arguments.specification, "a.attn");
  EXPECT_EQ(arguments.options.name, "a.attn");
  EXPECT_EQ(std::get<std::string>(arguments.inputs.at("q")), "q.npy");
  EXPECT_EQ(std::get<std::string>(arguments.inputs.at("w")), "0.5");
  EXPECT_EQ(std::get<RandomInput>(arguments.inputs.at("k")).shape, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(arguments.outputs.at("out"), "o.npy");
  EXPECT_EQ(arguments.options.sizes.at("D"), 64);
  EXPECT_EQ(arguments.options.kernel, "fast");
  EXPECT_EQ(arguments.options.dtype, "bf16");
  EXPECT_EQ(arguments.tolerance, 1e-3);
  EXPECT_EQ(arguments.threads, 3);
  EXPECT_EQ(arguments.seed, 9u);
  EXPECT_TRUE(arguments.check && arguments.time && arguments.options.checkBounds && !arguments.help);
}

TEST(AttnRunArguments, Inputs) {
  std::vector<std::string> words = {"x.attn",      "--input", "width=0.25", "--input",
                                    "causal=true", "--input", "window=-3"};
  words.insert(words.end(), enough.begin(), enough.end());
  std::vector<std::optional<Array>> inputs = makeInputs(parameters, parseArguments(words));
  EXPECT_EQ(inputs[0]->shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(inputs[1]->type().name, "i32");
  EXPECT_EQ(inputs[2]->get(0), 0.25);
  EXPECT_EQ(inputs[3]->get(0), -3);
  EXPECT_EQ(inputs[4]->get(0), 1);
  EXPECT_FALSE(makeInputs(parameters, parseArguments({"x.attn", enough[0], enough[1], enough[2]}))[2])
      << "the kernel has the default";
}

TEST(AttnRunArguments, RandomIntegersGoUpToTheLargestDimension) {
  auto inputs = makeInputs(parameters, parseArguments({"x.attn", "--random", "q=500x3", "--random", "valid=500"}));
  double least = 1e9, most = 0;
  for (int64_t number = 0; number < 500; ++number) {
    least = std::min(least, inputs[1]->get(number));
    most = std::max(most, inputs[1]->get(number));
  }
  EXPECT_TRUE(least >= 1 && least < 50 && most > 450 && most <= 500);
}

TEST(AttnRunArguments, InputErrors) {
  EXPECT_EQ(errorOf({}), "missing input q: f32[B, M]; give it with --input or --random\n"
                         "missing input valid: i32[B]; give it with --input or --random");
  EXPECT_EQ(errorWith("--input", "kk=1"), "the kernel has no input 'kk'; it has q, valid, width, window, causal");
  EXPECT_EQ(errorOf({"--input", "q=0.5"}), "q: f32[B, M] is a tensor and needs a .npy file, but '0.5' was given");
  EXPECT_EQ(errorWith("--input", "width=wide"), "width: f32 needs a number, but 'wide' was given");
  EXPECT_EQ(errorWith("--input", "window=1.5"), "window: i32 needs a whole number that fits i32, but '1.5' was given");
  EXPECT_EQ(errorWith("--input", "window=2147483648"),
            "window: i32 needs a whole number that fits i32, but '2147483648' was given");
  EXPECT_EQ(errorWith("--input", "causal=2"), "causal: bool needs true or false, but '2' was given");
  EXPECT_EQ(errorOf({"--random", "q=2x3", "--random", "valid=2:0.5..3"}),
            "--random valid: expected whole numbers for i32, but found 0.5..3");

  std::string path = testing::TempDir() + "attn-run-doubles.npy";
  writeNpy(path, Array(ElementType::named("f64"), {2, 3}));
  EXPECT_EQ(errorOf({"--input", "q=" + path, enough[2]}), "q: expected f32, but " + path + " holds f64");
  writeNpy(path, Array(ElementType::named("bf16"), {2, 3}));
  EXPECT_EQ(errorOf({"--input", "q=" + path, enough[2]}), "q: expected f32, but " + path + " holds u2 (bf16)");
}

TEST(AttnRunArguments, OptionErrors) {
  EXPECT_EQ(errorWith("--frobnicate", "1"), "unknown option '--frobnicate'; see attn-run --help");
  EXPECT_EQ(errorOf({"--seed"}), "--seed needs a value");
  EXPECT_EQ(errorOf({"y.attn"}), "expected one .attn file, but found 'y.attn' after 'x.attn'");
  EXPECT_EQ(errorWith("--input", "q"), "--input: expected NAME=VALUE, but found 'q'");
  EXPECT_EQ(errorWith("--output", "=x"), "--output: expected NAME=VALUE, but found '=x'");
  EXPECT_EQ(errorWith("--input", "q=q.npy"), "--input: 'q' is given twice");
  EXPECT_EQ(errorOf({"--random", "q=2xx3"}), "--random q: expected a shape such as 2x8x64, but found '2xx3'");
  EXPECT_EQ(errorOf({"--random", "q=2x-3"}), "--random q: expected a shape such as 2x8x64, but found '2x-3'");
  for (const char *range : {"3", "3..1", "1..", "a..b"})
    EXPECT_EQ(errorOf({"--random", std::string("q=2:") + range}),
              std::string("--random q: expected a range LOW..HIGH, but found '") + range + "'");
  EXPECT_EQ(errorWith("--set", "D=big"), "--set D: expected a whole number of at least 0, but found 'big'");
  EXPECT_EQ(errorWith("--plan", "tile.keys=many"), "--plan tile.keys: expected a whole number, but found 'many'");
  EXPECT_EQ(errorWith("--tolerance", "-1"), "--tolerance: expected a number of at least 0, but found '-1'");
  EXPECT_EQ(errorWith("--threads", "many"), "--threads: expected a whole number from 0 to 4096, but found 'many'");
  EXPECT_EQ(errorWith("--dtype", "f8"), "--dtype: expected f32, bf16 or f16, but found 'f8'");
  EXPECT_THROW(parseArguments({"--check"}), Failure);

  Arguments arguments = parseArguments({"x.attn", "--output", "lse=l.npy"});
  try {
    checkOutputNames({{"out", "f32", {"M"}, {}}}, arguments);
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_STREQ(failure.what(), "the kernel has no output 'lse'; it has out");
  }
}
