//===- EmitReductions.cpp - Sums, softmaxes and other reductions ----------===//

#include "Emitter.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::StringRef;

Value Emitter::emitReduction(const ReductionExpression &expression) {
  Location place = location(expression.name);
  ReduceKind kind = *symbolizeReduceKind(expression.name);
  bool exponential = kind == ReduceKind::Softmax || kind == ReduceKind::LogSumExp;
  std::string user = ("`" + expression.name + "`").str();

  llvm::SmallVector<const Variable *> variables;
  llvm::SmallVector<SizeAttr> sizes;
  llvm::SmallVector<StringRef> names;
  llvm::SmallVector<Value> at, outer;
  for (const Index &index : expression.indices) {
    Variable *variable = resolver.variable(index);
    variables.push_back(variable);
    sizes.push_back(variable->range);
    names.push_back(index.name);
    outer.push_back(current.lookup(variable));
    if (kind == ReduceKind::Softmax)
      at.push_back(outer.back());
  }
  if (kind == ReduceKind::Softmax && llvm::is_contained(at, Value()))
    return {};
  Value sink;
  bool failed = false;
  if (expression.sink) {
    sink = emitFloat(*expression.sink, "the sink");
    failed = !sink;
  }

  auto op = ReduceOp::create(builder, place, kind, builder.getStrArrayAttr(names), sizes, computeType, at, sink,
                             expression.condition != nullptr);
  OpBuilder::InsertionGuard guard(builder);
  auto enter = [&](Region &region) {
    builder.setInsertionPointToStart(&region.front());
    for (auto [variable, argument] : llvm::zip(variables, region.getArguments()))
      current[variable] = argument;
  };
  enter(op.getBody());
  Value body = exponential ? emitFloat(*expression.body, user) : emitNumber(*expression.body, user);
  if (body) {
    YieldOp::create(builder, place, body);
    op.getResult().setType(body.getType());
  }
  failed |= !body;
  if (expression.condition) {
    enter(op.getWhere());
    Value condition = emitBool(*expression.condition, "the condition after `where`");
    if (condition)
      YieldOp::create(builder, place, condition);
    failed |= !condition;
  }
  for (auto [variable, value] : llvm::zip(variables, outer))
    current[variable] = value;
  return failed ? Value() : op.getResult();
}
