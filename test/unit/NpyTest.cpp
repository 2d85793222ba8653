//===- NpyTest.cpp - .npy files, whole and broken -------------------------===//

#include "tools/attn-run/Array.h"

#include "gtest/gtest.h"

#include <cstring>
#include <random>

using namespace attn::run;

/// A file with this header and data.
static std::string file(std::string header, std::string data, int major = 1) {
  header += '\n';
  std::string bytes = std::string("\x93NUMPY") + static_cast<char>(major) + '\0';
  for (int byte = 0; byte < (major == 1 ? 2 : 4); ++byte)
    bytes += static_cast<char>(header.size() >> (8 * byte) & 0xff);
  return bytes + header + data;
}

static std::string header(const std::string &descriptor, const std::string &shape, bool fortran = false) {
  return "{'descr': '" + descriptor + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape +
         ", }";
}

template <typename T> static std::string bytesOf(std::vector<T> values) {
  return std::string(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T));
}

static std::vector<double> valuesOf(const Array &array) {
  std::vector<double> values;
  for (int64_t number = 0; number < array.elementCount(); ++number)
    values.push_back(array.get(number));
  return values;
}

static std::string errorOf(const std::string &bytes) {
  try {
    parseNpy(bytes, "x.npy");
  } catch (const Failure &failure) {
    return failure.what();
  }
  return "no error";
}

TEST(Npy, EveryElementType) {
  auto read = [](const std::string &descriptor, const std::string &data) {
    Array array = parseNpy(file(header(descriptor, "(2,)"), data), "x.npy");
    return std::pair(std::string(array.type().name), valuesOf(array));
  };
  using Result = std::pair<std::string, std::vector<double>>;
  EXPECT_EQ(read("<f8", bytesOf<double>({0.1, -2})), (Result{"f64", {0.1, -2}}));
  EXPECT_EQ(read("<f4", bytesOf<float>({0.5, -2})), (Result{"f32", {0.5, -2}}));
  EXPECT_EQ(read("<f2", bytesOf<uint16_t>({0x3c01, 0x8001})), (Result{"f16", {1 + 0x1p-10, -0x1p-24}}));
  EXPECT_EQ(read("<u2", bytesOf<uint16_t>({0x3f80, 0xc0a0})), (Result{"bf16", {1, -5}}));
  EXPECT_EQ(read("<i8", bytesOf<int64_t>({-3, int64_t{1} << 40})), (Result{"i64", {-3, 0x1p40}}));
  EXPECT_EQ(read("<i4", bytesOf<int32_t>({-3, 7})), (Result{"i32", {-3, 7}}));
  EXPECT_EQ(read("|i1", bytesOf<int8_t>({-3, 7})), (Result{"i8", {-3, 7}}));
  EXPECT_EQ(read("|u1", bytesOf<uint8_t>({253, 7})), (Result{"u8", {253, 7}}));
  EXPECT_EQ(read("|b1", bytesOf<uint8_t>({0, 5})), (Result{"bool", {0, 1}}));
}

TEST(Npy, VersionsAndSpelling) {
  for (int version : {1, 2, 3})
    EXPECT_EQ(valuesOf(parseNpy(file(header("<i4", "()"), bytesOf<int32_t>({9}), version), "x")),
              (std::vector<double>{9}));
  std::string other = "{\"shape\":(1,2L),\"fortran_order\":False,\"descr\":\"<i4\"}";
  EXPECT_EQ(parseNpy(file(other, bytesOf<int32_t>({9, 8})), "x").shape(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(parseNpy(file(header("<i4", "(3, 0)"), ""), "x").shape(), (std::vector<int64_t>{3, 0}));
}

TEST(Npy, FortranOrder) {
  // x[i, j, k] = 100 i + 10 j + k, first index fastest.
  std::vector<int32_t> stored;
  std::vector<double> expected;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i)
        stored.push_back(100 * i + 10 * j + k);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        expected.push_back(100 * i + 10 * j + k);
  EXPECT_EQ(valuesOf(parseNpy(file(header("<i4", "(2, 3, 4)", true), bytesOf(stored)), "x")), expected);
}

TEST(Npy, WritesWhatItReads) {
  for (const char *name : {"f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"})
    for (const std::vector<int64_t> &shape : {std::vector<int64_t>{}, {3}, {2, 3}, {2, 0, 3}}) {
      Array array(ElementType::named(name), shape);
      for (int64_t number = 0; number < array.elementCount(); ++number)
        array.set(number, number);
      std::string bytes = formatNpy(array);
      EXPECT_EQ((bytes.size() - array.byteCount()) % 64, 0u) << "data is aligned";
      Array again = parseNpy(bytes, "x.npy");
      EXPECT_EQ(again.type().name, array.type().name);
      EXPECT_EQ(again.shape(), shape);
      EXPECT_EQ(valuesOf(again), valuesOf(array));
    }
  std::string bytes = formatNpy(Array(ElementType::named("f32"), {2, 3}));
  EXPECT_EQ(bytes.substr(10, bytes.find('}') - 9), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  bytes = formatNpy(Array(ElementType::named("bool"), {2}));
  EXPECT_EQ(bytes.substr(10, bytes.find('}') - 9), "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }");
}

TEST(Npy, Errors) {
  std::string good = file(header("<f4", "(2, 3)"), std::string(24, '\0'));
  EXPECT_EQ(errorOf("PK\x03\x04 a zip"), "x.npy: is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(errorOf(""), "x.npy: is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(errorOf(good.substr(0, 7)), "x.npy: ends within the header");
  EXPECT_EQ(errorOf(good.substr(0, 9)), "x.npy: ends within the header");
  EXPECT_EQ(errorOf(good.substr(0, 40)), "x.npy: ends within the header");
  EXPECT_EQ(errorOf(file("", "", 4)), "x.npy: has the format version 4.0; only 1.0, 2.0 and 3.0 can be read");
  EXPECT_EQ(errorOf(good.substr(0, good.size() - 1)),
            "x.npy: shape [2, 3] of f32 needs 24 bytes of data, but the file has 23");
  EXPECT_EQ(errorOf(good + "x"), "x.npy: shape [2, 3] of f32 needs 24 bytes of data, but the file has 25");
  EXPECT_EQ(errorOf(file(header("<f4", "(4294967296, 4294967296)"), "")),
            "x.npy: shape [4294967296, 4294967296] of f32 needs more than 2^64 bytes of data, but the file has 0");
  EXPECT_EQ(errorOf(file(header(">f4", "()"), "1234")),
            "x.npy: holds big-endian '>f4'; only little-endian arrays can be read");
  for (const char *descriptor : {"<c8", "<U3", "|O", "<f16", "", "f4"})
    EXPECT_EQ(errorOf(file(header(descriptor, "()"), "1234")),
              std::string("x.npy: holds '") + descriptor +
                  "'; only f8 f4 f2 i8 i4 i1 u1 b1 and u2 (for bf16) can be read");
  EXPECT_EQ(errorOf(file("{'descr': [('a', '<f4')], }", "")),
            "x.npy: the header must have a string where '[('a', '<f4')], ' is");
  EXPECT_EQ(errorOf(file("{'descr': '<f4", "")), "x.npy: the header must have a string where ''<f4\n' is");
  EXPECT_EQ(errorOf(file("{'descr': '<f4', 'shape': (1,)}", "")), "x.npy: the header lacks 'fortran_order'");
  EXPECT_EQ(errorOf(file("{'size': 3}", "")), "x.npy: the header has the unknown key 'size'");
  EXPECT_EQ(errorOf(file("{'fortran_order': 1}", "")), "x.npy: the header must have True or False where '1}\n' is");
  EXPECT_EQ(errorOf(file("{'shape': (-1,)}", "")), "x.npy: the header must have a dimension where '-1,)}\n' is");
  EXPECT_EQ(errorOf(file("{'shape': (9223372036854775808,)}", "")),
            "x.npy: the header must have a dimension below 2^63 where '9223372036854775' is");
  EXPECT_EQ(errorOf(file("{'shape': (1", "")), "x.npy: the header must have ')' where its end is");
  EXPECT_EQ(errorOf(file("shape", "")), "x.npy: the header must have '{' where 'shape\n' is");
}

TEST(Npy, NoCorruptFileReadsOutOfBounds) {
  // The address sanitizer watches; here it is enough that each attempt ends in an array or a Failure.
  std::string good = file(header("<f4", "(2, 3)"), std::string(24, '\0'));
  std::mt19937 random(7);
  int failures = 0;
  for (int attempt = 0; attempt < 20000; ++attempt) {
    std::string bytes = good.substr(0, attempt % 3 ? good.size() : random() % good.size());
    for (int change = 0; change < 3 && !bytes.empty(); ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    failures += errorOf(bytes) != "no error";
  }
  EXPECT_GT(failures, 10000);
}

TEST(Npy, FilesThatCannotBeOpened) {
  try {
    readNpy("/nowhere/x.npy");
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_STREQ(failure.what(), "/nowhere/x.npy: No such file or directory");
  }
  try {
    writeNpy("/nowhere/x.npy", Array(ElementType::named("f32"), {}));
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_STREQ(failure.what(), "/nowhere/x.npy: cannot be written: No such file or directory");
  }
}
