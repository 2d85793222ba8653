//===- SplitRegions.h - Formulas of the split plan's stages -----*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_SPLITREGIONS_H
#define ATTN_LIB_HALIDE_SPLITREGIONS_H

#include "Split.h"

namespace attn::lowering {

/// Score, mask and weight factors, in a stage over keys or rows. `key` counts within the chunk.
class SplitRegion : public RegionLowering {
public:
  SplitRegion(Split &split, Environment &environment, Halide::Expr key = {})
      : RegionLowering(split.kernel, environment), split(split), key(key) {}

protected:
  Halide::Expr reduce(ReduceOp op) override;

private:
  Split &split;
  Halide::Expr key;
};

/// Lanes along an index, of which some are surplus.
struct LaneMask {
  llvm::SmallVector<mlir::Value, 2> indices; ///< What stands for it in formulas.
  Halide::Expr isThere;                      ///< Undefined where none is surplus.

  /// Whether surplus lanes may not read `value`.
  bool hides(mlir::Value value) const;
  /// What `read`, which is hidden and lowered by `plain`, reads in the lanes that are there. For subscripts that are
  /// more than sums and products (`e // 2`) Halide loads other lanes than the formula has: there surplus lanes read
  /// what the last one does.
  Halide::Expr read(StepLowering &kernel, const Environment &environment, ReadOp read,
                    llvm::function_ref<Halide::Expr()> plain) const;
};

/// A formula without reductions that reads nothing in surplus lanes.
class MaskedRegion : public PlainRegion {
public:
  MaskedRegion(StepLowering &kernel, Environment &environment, LaneMask mask)
      : PlainRegion(kernel, environment), mask(std::move(mask)) {}

protected:
  Halide::Expr stored(mlir::Value value) override;

private:
  LaneMask mask;
};

/// A term of a reduction at a key, for a tile of rows: what it reads at keys is seen to be the same for all of them;
/// what it reads for a row is packed. Reductions that it has stand around its own: a score within a sum.
class KeyRegion : public RegionLowering {
public:
  KeyRegion(Split &split, Environment &environment, Split::TileKey key, LaneMask mask = {})
      : RegionLowering(split.kernel, environment), split(split),
        first(split.ofBlock(environment, split.blockOfTile(key.rows))), key(std::move(key)), mask(std::move(mask)) {}

protected:
  Halide::Expr reduce(ReduceOp op) override;
  Halide::Expr stored(mlir::Value value) override;

private:
  Split &split;
  Environment first;
  Split::TileKey key;
  LaneMask mask;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_SPLITREGIONS_H
