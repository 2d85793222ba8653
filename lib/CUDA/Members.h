//===- Members.h - Members of a kernel's struct -----------------*- C++ -*-===//
//
// Emission.cpp writes the struct that lib/CUDA/Attention.cuh is instantiated with. Most of its functions come from
// formulas: these are written first, for they say which fields `block` and `row` have.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_CUDA_MEMBERS_H
#define ATTN_LIB_CUDA_MEMBERS_H

#include "Formula.h"
#include "attn/CUDA/Emission.h"

namespace attn::cuda {

/// The functions of the score, the mask and the keys that it leaves, the weight and the sink.
std::string elementFunctions(Formulas &formulas);

/// Whether a block looks for the tiles of keys that some row sees: the mask says more than between which keys these are,
/// and it takes little to look.
bool searchesTiles(Attention &attention);

/// What SeenTiles.cuh asks of the mask: numbers of a row and of a key, and what holds between the least and the greatest
/// of them. Nothing where no tiles are looked for.
std::string tileSearch(Formulas &formulas);

/// The functions that say where rows of queries, keys, values and outputs are.
std::string rowsOfTensors(Formulas &formulas);

/// The functions that say where keys are in their tensors and in the values', for tensor maps, and these maps; nothing
/// where no map is for one of them.
std::string placesOfKeys(Formulas &formulas, std::vector<CudaTensorMap> &maps);

/// The structure that a launch is given: the tensors, as far as they are used, the sizes and, if it has them, maps.
std::string argumentStruct(const Formulas &formulas, bool hasMaps);

/// What it takes in memory, by C++'s rules.
int64_t argumentBytes(Attention &attention, bool hasMaps);

} // namespace attn::cuda

#endif // ATTN_LIB_CUDA_MEMBERS_H
