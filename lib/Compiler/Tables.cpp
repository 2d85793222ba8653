//===- Tables.cpp - The runtime's tables in LLVM IR -----------------------===//

#include "Tables.h"

#include "llvm/IR/DerivedTypes.h"

using namespace attn;
using llvm::Constant;

TableBuilder::TableBuilder(llvm::Module &module)
    : module(module), number(llvm::Type::getInt64Ty(module.getContext())),
      pointer(llvm::PointerType::getUnqual(module.getContext())) {}

Constant *TableBuilder::signature(const KernelInterface &interface, llvm::ArrayRef<Constant *> programs,
                                  llvm::StringRef targets) {
  std::vector<Constant *> tensors, sizes, order, checks, ranges;
  for (const auto *list : {&interface.inputs, &interface.outputs})
    for (const TensorInterface &tensor : *list)
      tensors.push_back(describe(tensor));
  for (const SizeInterface &size : interface.sizes)
    sizes.push_back(
        record({text(size.name), integer(size.tensor), integer(size.dimension), expression(size.solution)}));
  for (int64_t position : interface.sizeOrder)
    order.push_back(integer(position));
  for (const CheckInterface &check : interface.checks)
    checks.push_back(record({text(check.message), expression(check.part), expression(check.whole)}));
  for (const RangeInterface &range : interface.ranges)
    ranges.push_back(record({text(range.index), expression(range.size)}));
  return global(
      record({text(interface.name), integer(interface.inputs.size()), integer(interface.outputs.size()),
              integer(sizes.size()), array(tensors), array(sizes), array(order), integer(checks.size()), array(checks),
              integer(ranges.size()), array(ranges), integer(programs.size()), array(programs), text(targets)}));
}

Constant *TableBuilder::bounds(const KernelInterface &interface, llvm::ArrayRef<Constant *> programs) {
  std::vector<Constant *> bounds;
  for (const BoundInterface &bound : interface.bounds)
    bounds.push_back(
        record({text(bound.statement), text(bound.tensor), integer(bound.dimension), expression(bound.size)}));
  return global(record({integer(bounds.size()), array(bounds), integer(programs.size()), array(programs)}));
}

Constant *TableBuilder::program(const ProgramInterface &program, Constant *canUse) {
  std::vector<Constant *> intermediates, steps, blocks, cuts, features;
  for (const IntermediateInterface &intermediate : program.intermediates)
    intermediates.push_back(
        record({describe(intermediate.tensor), integer(intermediate.written), integer(intermediate.read)}));
  for (const StepInterface &step : program.steps) {
    std::vector<Constant *> variants;
    for (const VariantInterface &described : step.variants)
      variants.push_back(variant(described));
    steps.push_back(record({expression(step.work), array(variants)}));
  }
  for (const BlocksInterface &described : program.blocks) {
    std::vector<Constant *> sizes, tensors;
    for (const SizeProgram &size : described.sizes)
      sizes.push_back(expression(size));
    for (const BlockTensorInterface &tensor : described.tensors) {
      std::vector<Constant *> axes;
      for (int64_t axis : tensor.axes)
        axes.push_back(integer(axis));
      tensors.push_back(record({integer(tensor.argument), integer(tensor.isPairs), array(axes)}));
    }
    blocks.push_back(record({integer(described.first), integer(described.end), integer(described.findsKeys),
                             integer(described.searchesKeys), integer(described.cutsKeys), integer(sizes.size()),
                             array(sizes), integer(tensors.size()), array(tensors)}));
  }
  for (const CutInterface &cut : program.cuts)
    cuts.push_back(record({integer(cut.size), integer(cut.unit)}));
  for (uint64_t word : program.features)
    features.push_back(integer(word));
  return record({integer(intermediates.size()), array(intermediates), integer(steps.size()), array(steps),
                 integer(blocks.size()), array(blocks), integer(cuts.size()), array(cuts), integer(features.size()),
                 array(features), canUse ? canUse : llvm::ConstantPointerNull::get(pointer), device(program.device),
                 integer(program.copies), launch(program.launch), llvm::ConstantPointerNull::get(pointer)});
}

/// Of Halide's runtime, or of ours in its place; its type does not matter in a table.
Constant *TableBuilder::function(llvm::StringRef name) {
  auto *type = llvm::FunctionType::get(llvm::Type::getInt32Ty(module.getContext()), pointer, true);
  return llvm::cast<Constant>(module.getOrInsertFunction(name, type).getCallee());
}

Constant *TableBuilder::launcher() {
  if (!launcherTable)
    launcherTable = global(record({function("halide_cuda_device_interface"), function("halide_copy_to_device"),
                                   function("halide_device_malloc"), function("halide_cuda_initialize_kernels"),
                                   function("halide_cuda_run"), function("halide_cuda_finalize_kernels"),
                                   function("attn_cuda_multiprocessors"), function("attn_cuda_tensor_map")}));
  return launcherTable;
}

Constant *TableBuilder::launch(const std::optional<LaunchInterface> &launch) {
  if (!launch)
    return llvm::ConstantPointerNull::get(pointer);
  std::vector<Constant *> replaced, arguments, tilings, images, limits, contiguous, maps;
  for (int64_t isReplaced : launch->replaced)
    replaced.push_back(integer(isReplaced));
  for (const attn_launch_argument &argument : launch->arguments)
    arguments.push_back(
        record({integer(argument.number), integer(argument.value_bytes), integer(argument.is_written)}));
  for (const TilingInterface &tiling : launch->tilings)
    tilings.push_back(record({text(tiling.function), integer(tiling.rows), integer(tiling.keys),
                              integer(tiling.threads), integer(tiling.sharedBytes), integer(tiling.resident)}));
  for (const CudaImage &image : launch->images) {
    Constant *data = llvm::ConstantDataArray::getString(module.getContext(), image.data, /*AddNull=*/false);
    auto *bytes = llvm::cast<llvm::GlobalVariable>(global(data));
    bytes->setAlignment(llvm::Align(16));
    images.push_back(record({integer(image.capability), integer(image.kind), integer(image.data.size()), bytes}));
  }
  for (const LimitInterface &limit : launch->limits)
    limits.push_back(this->limit(limit));
  for (int64_t argument : launch->contiguous)
    contiguous.push_back(integer(argument));
  for (const attn_mapped_argument &map : launch->maps)
    maps.push_back(record({integer(map.number), integer(map.axis)}));
  auto *state = new llvm::GlobalVariable(module, pointer, /*isConstant=*/false, llvm::GlobalValue::PrivateLinkage,
                                         llvm::ConstantPointerNull::get(pointer), "attn_launch_state");
  return global(record({integer(launch->step),
                        array(replaced),
                        integer(arguments.size()),
                        array(arguments),
                        integer(tilings.size()),
                        array(tilings),
                        text(launch->merge),
                        integer(launch->mergingThreads),
                        integer(images.size()),
                        array(images),
                        expression(launch->rows),
                        expression(launch->others),
                        expression(launch->keys),
                        integer(launch->stateSize),
                        integer(limits.size()),
                        array(limits),
                        integer(contiguous.size()),
                        array(contiguous),
                        integer(maps.size()),
                        array(maps),
                        state,
                        launcher()}));
}

/// The functions are those of Halide's runtime, or of ours in their place.
Constant *TableBuilder::device(Device device) {
  if (device == Device::Cpu)
    return llvm::ConstantPointerNull::get(pointer);
  bool isCuda = device == Device::Cuda;
  auto function = [&](const char *cuda, const char *openCl) { return this->function(isCuda ? cuda : openCl); };
  llvm::GlobalVariable *&table = devices[device];
  if (!table)
    table = llvm::cast<llvm::GlobalVariable>(
        global(record({integer(isCuda ? kDLCUDA : kDLOpenCL), text(isCuda ? "CUDA" : "OpenCL"),
                       text(isCuda ? "libcuda.so.1" : "libOpenCL.so.1"), text(isCuda ? "cuInit" : "clGetPlatformIDs"),
                       function("halide_cuda_get_symbol", "halide_opencl_get_symbol"),
                       function("halide_cuda_compute_capability", "halide_opencl_compute_capability"),
                       function("halide_cuda_wrap_device_ptr", "halide_opencl_wrap_cl_mem"),
                       function("halide_cuda_detach_device_ptr", "halide_opencl_detach_cl_mem"),
                       function("halide_copy_to_host", "halide_copy_to_host"),
                       function("halide_device_free", "halide_device_free")})));
  return table;
}

Constant *TableBuilder::limit(const LimitInterface &limit) {
  return record({expression(limit.size), integer(limit.atMost)});
}

Constant *TableBuilder::variant(const VariantInterface &variant) {
  std::vector<Constant *> arguments;
  Constant *limit = llvm::ConstantPointerNull::get(pointer);
  if (variant.limit)
    limit = global(this->limit(*variant.limit));
  for (int64_t argument : variant.arguments)
    arguments.push_back(integer(argument));
  auto *type = llvm::FunctionType::get(llvm::Type::getInt32Ty(module.getContext()), pointer, false);
  Constant *function = llvm::ConstantPointerNull::get(pointer);
  if (!variant.function.empty())
    function = llvm::cast<Constant>(module.getOrInsertFunction(variant.function + "_argv", type).getCallee());
  return record({limit, integer(arguments.size()), array(arguments), function});
}

Constant *TableBuilder::describe(const TensorInterface &tensor) {
  std::vector<Constant *> shape;
  for (const SizeProgram &size : tensor.shape)
    shape.push_back(expression(size));
  return record({text(tensor.name), integer(tensor.code), integer(tensor.bits), integer(shape.size()), array(shape),
                 integer(tensor.defaultValue.has_value()), integer(tensor.defaultBits)});
}

Constant *TableBuilder::expression(const SizeProgram &program) {
  std::vector<Constant *> code;
  for (const attn_instruction &instruction : program.code)
    code.push_back(record({integer(instruction.opcode), integer(instruction.operand)}));
  return record({text(program.text), integer(code.size()), array(code)});
}

Constant *TableBuilder::integer(uint64_t value) { return llvm::ConstantInt::get(number, value); }

Constant *TableBuilder::record(llvm::ArrayRef<Constant *> fields) { return llvm::ConstantStruct::getAnon(fields); }

Constant *TableBuilder::text(llvm::StringRef value) {
  return global(llvm::ConstantDataArray::getString(module.getContext(), value));
}

Constant *TableBuilder::array(llvm::ArrayRef<Constant *> elements) {
  if (elements.empty())
    return llvm::ConstantPointerNull::get(pointer);
  return global(llvm::ConstantArray::get(llvm::ArrayType::get(elements[0]->getType(), elements.size()), elements));
}

Constant *TableBuilder::global(Constant *value) {
  return new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                  value, "attn_table");
}
