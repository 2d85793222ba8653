//===- Statement.cpp - Writes `name[i, j] = sum[k](term where c)` ---------===//

#include "Statement.h"
#include "Form.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace attn;

Axis attn::axisOf(BlockArgument index) { return {indexName(index).str(), indexSize(index)}; }

TensorOp Statement::write(KernelOp kernel, OpBuilder &builder, Location location) const {
  MLIRContext *context = builder.getContext();
  llvm::StringSet<> taken;
  auto names = [&](ArrayRef<Axis> axes) {
    SmallVector<Attribute> result;
    for (const Axis &axis : axes) {
      std::string name = axis.name;
      for (int number = 1; !taken.insert(name).second; ++number)
        name = axis.name + "_" + std::to_string(number);
      result.push_back(StringAttr::get(context, name));
    }
    return ArrayAttr::get(context, result);
  };
  auto sizes = [](ArrayRef<Axis> axes) {
    return llvm::map_to_vector(axes, [](const Axis &axis) { return axis.size; });
  };

  OpBuilder::InsertionGuard guard(builder);
  auto tensor = TensorOp::create(builder, location, freshName(kernel, name), names(axes),
                                 AttnTensorType::get(context, sizes(axes), type));
  Block &block = tensor.getBody().front();
  builder.setInsertionPointToEnd(&block);
  SmallVector<Value> indices(block.args_begin(), block.args_end());
  if (summed.empty()) {
    Value element = term(builder, indices);
    if (condition) {
      Value zero = floatConstant(0, type, builder, location);
      element = arith::SelectOp::create(builder, location, condition(builder, indices), element, zero);
    }
    YieldOp::create(builder, location, element);
    return tensor;
  }
  auto reduce = ReduceOp::create(builder, location, kind, names(summed), sizes(summed), type, ValueRange(), Value(),
                                 static_cast<bool>(condition));
  YieldOp::create(builder, location, reduce.getResult());
  auto fill = [&](Region &region, const auto &formula) {
    SmallVector<Value> all(indices);
    all.append(region.args_begin(), region.args_end());
    builder.setInsertionPointToEnd(&region.front());
    Value value = formula(builder, Indices(all));
    YieldOp::create(builder, location, value);
  };
  fill(reduce.getBody(), term);
  if (condition)
    fill(reduce.getWhere(), condition);
  return tensor;
}

TensorOp attn::define(StringRef name, Value value, ArrayRef<BlockArgument> indices, ArrayRef<Axis> axes,
                      TensorOp tensor) {
  OpBuilder builder(tensor);
  Statement statement{name.str(), SmallVector<Axis>(axes), {}, value.getType(), nullptr};
  statement.term = [&](OpBuilder &builder, Indices places) {
    IRMapping mapping;
    for (auto [index, place] : llvm::zip_equal(indices, places))
      mapping.map(index, place);
    return cloneSlice(value, mapping, builder);
  };
  return statement.write(tensor->getParentOfType<KernelOp>(), builder, value.getLoc());
}
