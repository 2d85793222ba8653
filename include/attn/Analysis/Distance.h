//===- Distance.h - What the distance of two indices decides ----*- C++ -*-===//

#ifndef ATTN_ANALYSIS_DISTANCE_H
#define ATTN_ANALYSIS_DISTANCE_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace attn {

/// A query and a key index, and which values depend on nothing of them but their distance.
class Distance {
public:
  Distance(mlir::BlockArgument query, mlir::BlockArgument key) : query(query), key(key) {}

  /// Whether `value` is the same for all pairs of the two indices that are as far from each other.
  bool decides(mlir::Value value);

  /// Whether `value` changes with the query through nothing but rows of tables that the distance chooses.
  bool choosesRows(mlir::Value value);

  /// Whether a reduction or a function that changes with the distance computes `value`. Elements of a tensor here and
  /// there, as those of a table of clipped distances, take no longer than neighbours do.
  bool isCostly(mlir::Value value) const;

private:
  /// An integer that is so many times the query, so many times the key, and what depends on neither.
  struct Place {
    int64_t query, key;
  };

  bool changes(mlir::Value value) const;
  bool isDecided(mlir::Value value);
  std::optional<Place> placeOf(mlir::Value value) const;

  mlir::BlockArgument query, key;
  llvm::DenseMap<mlir::Value, bool> decided;
};

/// Whether the distance of two indices says which of `rows` rows of a table `row` is, and the sizes of the two do not
/// say how many rows there are: there are fewer of them than pairs.
bool choosesFewRows(mlir::Value row, SizeAttr rows);

} // namespace attn

#endif // ATTN_ANALYSIS_DISTANCE_H
