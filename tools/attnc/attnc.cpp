//===- attnc.cpp - The compiler: attention ahead of time ------------------===//
//
// attnc SPEC.attn writes SPEC.o and SPEC.h; attnc --emit=STAGE prints a stage instead. What it does is in
// attn/Compiler/Compiler.h; here are the command line and the files. attnc tune is attn/Compiler/Tune.h.
//
//===----------------------------------------------------------------------===//

#include "Command.h"
#include "Tune.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

namespace cl = llvm::cl;

static cl::OptionCategory category("Options of attnc");

static cl::SubCommand tuneCommand("tune", "Find the plan that is fastest on this machine, and store it");
/// Options that both commands have.
static cl::SubCommandGroup always({&cl::SubCommand::getTopLevel(), &tuneCommand});

static cl::opt<std::string> input(cl::Positional, cl::desc("SPEC.attn"), cl::cat(category), cl::sub(always));
static cl::opt<std::string> kernel("kernel", cl::desc("Compile this kernel only"), cl::value_desc("NAME"),
                                   cl::cat(category), cl::sub(always));
static cl::opt<std::string> target("target",
                                   cl::desc("Compile for this machine: host, cuda, opencl, or Halide targets such as "
                                            "arm-64-linux, of which a call takes the first that suits the processor "
                                            "and where the tensors are; cuda-sm_80,sm_90a uses tensor cores"),
                                   cl::value_desc("TARGET,..."), cl::init("host"), cl::cat(category));
static cl::list<std::string> set("set", cl::desc("Fix a size at compile time"), cl::value_desc("NAME=INT"),
                                 cl::cat(category), cl::sub(always));
static cl::opt<std::string> dtype("dtype", cl::desc("Compute with this dtype instead of the source's: f32, bf16, f16"),
                                  cl::value_desc("DTYPE"), cl::cat(category), cl::sub(always));
static cl::list<std::string>
    plan("plan", cl::desc("Give the plan this size, instead of the one that is chosen; 'help' lists them"),
         cl::value_desc("NAME=INT"), cl::cat(category));
static cl::opt<std::string> emitStage(
    "emit",
    cl::desc(
        "Print a stage: ast, attn, simplified, plan, halide, loops, llvm, asm, ptx, opencl, cuda; or write the object"),
    cl::value_desc("STAGE"), cl::init("object"), cl::cat(category));
static cl::opt<bool> explain("explain", cl::desc("Say what was rewritten and why, with the costs before and after"),
                             cl::cat(category));
static cl::opt<bool> printMachine("print-machine", cl::desc("Print what is known of the target's processor"),
                                  cl::cat(category));
static cl::opt<std::string> gradient("grad",
                                     cl::desc("Compile the forward and the backward kernel, for these inputs or all"),
                                     cl::ValueOptional, cl::value_desc("q,k,v"), cl::cat(category));
static cl::opt<bool> noRuntime("no-runtime", cl::desc("Leave the runtime out: another object of the program has it"),
                               cl::cat(category));
static cl::opt<bool> checkBounds("check-bounds",
                                 cl::desc("Fail calls that use subscripts which depend on data and are out of bounds"),
                                 cl::cat(category));
static cl::opt<bool> copy("copy", cl::desc("On a GPU: copy tensors in the CPU's memory there and back"),
                          cl::cat(category));
static cl::opt<std::string> output("o", cl::desc("Where to write: the object (its header beside it), or the stage"),
                                   cl::value_desc("PATH"), cl::cat(category));

static cl::list<std::string> shapes("shape", cl::desc("Measure at these sizes (may be given several times)"),
                                    cl::value_desc("NAME=INT,..."), cl::cat(category), cl::sub(tuneCommand));
static cl::opt<int> threads("threads", cl::desc("Measure on this many threads; 0: one a core"), cl::value_desc("N"),
                            cl::cat(category), cl::sub(tuneCommand));
static cl::opt<std::string> database("database",
                                     cl::desc("Where to store the plan; otherwise where ATTN_TUNING_DB says"),
                                     cl::value_desc("PATH"), cl::cat(category), cl::sub(tuneCommand));

static int fail(const llvm::Twine &message) {
  llvm::errs() << "attnc: error: " << message << '\n';
  return 1;
}

/// Whether there is something at `path` that has no content of its own to replace: a device, a pipe.
static bool isDevice(const llvm::Twine &path) {
  llvm::sys::fs::file_status status;
  return !llvm::sys::fs::status(path, status) && llvm::sys::fs::exists(status) &&
         !llvm::sys::fs::is_regular_file(status) && !llvm::sys::fs::is_directory(status);
}

/// Writes a file as a whole or not at all: what a link names, not the link. Returns the exit status.
static int writeFile(llvm::StringRef path, llvm::StringRef contents) {
  llvm::SmallString<128> file(path);
  if (path != "-" && llvm::sys::fs::real_path(path, file))
    file = path; // there is none yet
  if (path != "-" && llvm::sys::fs::exists(input) && llvm::sys::fs::equivalent(input.getValue(), file))
    return fail("cannot write '" + path + "': it is the source");
  if (llvm::sys::fs::is_directory(file))
    return fail("cannot write '" + path + "': it is a directory");
  if (isDevice(file)) {
    std::error_code code;
    llvm::raw_fd_ostream os(file, code);
    if (!code) {
      os << contents;
      os.close();
      code = os.error();
      os.clear_error();
    }
    return code ? fail("cannot write '" + path + "': " + code.message()) : 0;
  }
  llvm::Error error = llvm::writeToOutput(file, [&](llvm::raw_ostream &os) {
    os << contents;
    return llvm::Error::success();
  });
  return error ? fail("cannot write " + llvm::toString(std::move(error))) : 0;
}

/// Reads NAME=INT of `option` into `numbers`. Returns the exit status.
static int readNumber(llvm::StringRef option, llvm::StringRef text, std::map<std::string, int64_t> &numbers) {
  auto [name, value] = text.split('=');
  int64_t number;
  if (name.empty() || value.getAsInteger(10, number) || number < 0)
    return fail(option + " needs NAME=INT with an integer of at least 0, but was given '" + text + "'");
  auto [known, isNew] = numbers.insert({name.str(), number});
  if (!isNew)
    return fail(option + " gives " + name + " twice: " + llvm::Twine(known->second) + " and " + llvm::Twine(number));
  return 0;
}

/// The options of both commands. Returns the exit status.
static int readOptions(attn::CompileOptions &options) {
  if (output.getNumOccurrences() && output.empty())
    return fail("-o needs a path, but was given ''");
  options.kernel = kernel;
  options.dtype = dtype;
  options.name = input == "-" ? "<stdin>" : input.getValue();
  for (llvm::StringRef setting : set)
    if (int status = readNumber("--set", setting, options.sizes))
      return status;
  return 0;
}

/// Options of attnc alone, which llvm::cl takes beside `tune` as well. Returns the exit status.
static int refuseOptionsOfCompilation() {
  for (auto [name, option] : cl::getRegisteredOptions(cl::SubCommand::getTopLevel()))
    if (option->getNumOccurrences() && !option->Subs.contains(&tuneCommand) &&
        llvm::is_contained(option->Categories, &category))
      return fail("tune has no option " + llvm::Twine(name.size() == 1 ? "-" : "--") + name +
                  ": see attnc tune --help");
  return 0;
}

static int tune(llvm::StringRef source) {
  if (int status = refuseOptionsOfCompilation())
    return status;
  attn::CompileOptions options;
  if (int status = readOptions(options))
    return status;
  attn::TuneOptions tuning;
  for (llvm::StringRef text : shapes) {
    attn::TuneShape &shape = tuning.shapes.emplace_back();
    for (llvm::StringRef size : llvm::split(text, ','))
      if (int status = readNumber("--shape", size, shape))
        return status;
  }
  if (tuning.shapes.empty())
    return fail("tune needs a shape to measure at: --shape NAME=INT,...");
  if (threads < 0)
    return fail("--threads needs an integer of at least 0, but was given " + llvm::Twine(threads));
  tuning.threads = threads;
  const char *variable = std::getenv("ATTN_TUNING_DB");
  std::string path = database.empty() && variable ? variable : database.getValue();
  attn::tuneAndReport(source, options, tuning, path);
  return 0;
}

static int writeObject(llvm::StringRef source, const attn::CompileOptions &options) {
  llvm::SmallString<128> objectPath(output), headerPath;
  if (output.empty()) {
    objectPath = input == "-" ? "kernel" : llvm::sys::path::filename(input);
    llvm::sys::path::replace_extension(objectPath, "o");
  }
  headerPath = objectPath;
  llvm::sys::path::replace_extension(headerPath, "h");
  if (headerPath == objectPath)
    return fail("-o names the object, so it cannot end in .h as '" + output + "' does");
  attn::ObjectFile file =
      attn::compileToObject(source, options, llvm::sys::path::filename(headerPath).str(), !noRuntime);
  int status = writeFile(objectPath, file.object);
  return status || isDevice(objectPath) ? status : writeFile(headerPath, file.header); // nothing lies beside a device
}

static int compile(llvm::StringRef source) {
  attn::CompileOptions options;
  if (int status = readOptions(options))
    return status;
  options.target = target;
  options.checkBounds = checkBounds;
  options.copy = copy;
  if (gradient.getNumOccurrences()) {
    options.gradient.emplace();
    for (llvm::StringRef name : llvm::split(gradient, ','))
      if (!name.empty())
        options.gradient->push_back(name.str());
      else if (!gradient.empty())
        return fail("--grad needs the names of inputs with a comma between two, but was given '" + gradient + "'");
  }
  for (llvm::StringRef setting : plan) {
    if (!options.plan)
      options.plan.emplace();
    if (int status = readNumber("--plan", setting, *options.plan))
      return status;
  }
  if (explain)
    return writeFile(output.empty() ? "-" : output.getValue(), attn::explain(source, options));
  if (emitStage == "object")
    return writeObject(source, options);
  return writeFile(output.empty() ? "-" : output.getValue(), attn::emit(source, options, emitStage));
}

static int run() {
  if (printMachine)
    return writeFile(output.empty() ? "-" : output.getValue(), attn::describeMachine(target));
  if (llvm::is_contained(plan, "help"))
    return writeFile("-", attn::describePlanSettings());
  if (input.empty())
    return fail("needs a spec: attnc SPEC.attn");
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(input);
  if (!file)
    return fail("cannot read " + input + ": " + file.getError().message());
  return tuneCommand ? tune((*file)->getBuffer()) : compile((*file)->getBuffer());
}

int attn::attnc(int count, char **arguments) {
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "attnc " ATTN_VERSION "\n"; });
  cl::ParseCommandLineOptions(count, arguments, "attnc: a compiler for attention\n");
  try {
    return run();
  } catch (const attn::CompileError &error) {
    llvm::errs() << error.report("attnc");
  } catch (const std::exception &error) {
    return fail(error.what());
  }
  return 1;
}
