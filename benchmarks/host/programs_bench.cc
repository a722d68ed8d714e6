// Programs on host memory: the collectives alone, the parts alone, the program, and the same
// program by Open MPI's collectives with cotune's parts, in one run.
//
//   programs_bench --ranks 2,4 --rows 4,16,256,1024 examples/programs/*.cotune
//
// Starts itself by mpirun once for each number of ranks. cotune tunes every program and the
// collectives in it first. Then, for each program and number of rows, rounds in which the four take
// turns: a barrier, calls back to back for some milliseconds, the largest mean over the ranks. A
// time is the median over the rounds. Open MPI knows no bf16 and no f16: their sums run by an
// operation of this file, in f32. The outputs of both programs are compared bit by bit before: the
// data is such that every order of additions is exact. With a file in BENCHMARK_OUT the same as
// JSON, a line for each cell.
#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "core/problem/program.h"
#include "core/problem/program_data.h"
#include "core/recipe/make_recipe.h"
#include "integration/dispatcher.h"
#include "integration/job.h"
#include "integration/tune_run.h"
#include "plugins/host/backend.h"

namespace cotune::bench {
namespace {

constexpr double kSampleSeconds = 0.02;
constexpr int kMaxCalls = 4000;
constexpr int64_t kTimeoutNs = 60'000'000'000;
constexpr size_t kAlignment = 64;

struct Options {
  std::vector<int> ranks = {2, 4};
  std::vector<uint64_t> rows = {4, 16, 256, 1024};
  std::vector<std::string> files;
  int rounds = 9;
};

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "programs_bench: %s\n", text.c_str());
  std::exit(1);
}

template <typename T>
T Value(Result<T> result) {
  if (!result) Die(result.error().ToText());
  return std::move(*result);
}
void Value(const Status& status) {
  if (!status) Die(status.error().ToText());
}

double LargestOverRanks(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) Die("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Adds up bf16 in f32, rounded to nearest even; the values of this program are no NaN.
void SumBf16(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const uint16_t*>(from);
  auto* b = static_cast<uint16_t*>(to);
  for (int i = 0; i < *count; ++i) {
    const float sum =
        std::bit_cast<float>(uint32_t{a[i]} << 16) + std::bit_cast<float>(uint32_t{b[i]} << 16);
    const auto bits = std::bit_cast<uint32_t>(sum);
    b[i] = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}

// Memory of whole cache lines.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    const uint64_t whole = (bytes + kAlignment) / kAlignment * kAlignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole)));
    if (data_ == nullptr) Die("no memory");
    std::memset(data_.get(), 0, whole);
  }
  std::byte* data() const { return data_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  uint64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// A program at one number of rows, with its operands and the plans of its parts.
class Workload {
 public:
  Workload(Job& job, Dispatcher& dispatcher, const Program& program, uint64_t rows)
      : job_(job),
        dispatcher_(dispatcher),
        program_(program),
        rows_(rows),
        recipe_(UnfusedRecipe(program.graph())) {
    const ProgramGraph& graph = program.graph();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      inputs_.emplace_back(program.BytesOf(static_cast<ValueIndex>(i), rows));
    }
    for (const ProgramOutput& output : graph.outputs()) {
      outputs_.emplace_back(output.into < 0 ? program.BytesOf(output.value, rows) : 0);
    }
    const TemporaryLayout layout = LayOut(recipe_, job.world_size(), rows);
    temporaries_ = std::make_unique<Buffer>(layout.bytes);
    for (const Buffer& input : inputs_) slots_.push_back(input.data());
    for (size_t i = 0; i < outputs_.size(); ++i) slots_.push_back(AddressOfOutput(i));
    for (const uint64_t offset : layout.offsets) slots_.push_back(temporaries_->data() + offset);
    for (const RecipeStep& step : recipe_.steps) parts_.push_back(PlanOf(step));
    for (const Buffer& input : inputs_) from_.push_back(input.data());
    for (size_t i = 0; i < outputs_.size(); ++i) to_.push_back(AddressOfOutput(i));
    // Sums of so many values of one sign each cancel: calls compute with the results of earlier
    // ones.
    FillInputs();
  }

  void FillInputs() {
    const ProgramGraph& graph = program_.graph();
    const ProgramDataSet data{
        .rows = rows_, .world_size = job_.world_size(), .salt = 1, .cancels_over_ranks = true};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      const ValueType& type = graph.type(value);
      const std::vector<std::byte> bytes =
          RepeatedRows(InputPeriod(graph, i, job_.rank(), data),
                       type.columns * SizeBytes(type.dtype), program_.RowsOf(value, rows_));
      std::copy(bytes.begin(), bytes.end(), inputs_[i].data());
    }
  }

  void RunProgram() {
    Value(dispatcher_.Run(ProgramCall{.graph = &program_.graph(),
                                      .rows = rows_,
                                      .inputs = from_,
                                      .outputs = to_,
                                      .timeout_ns = kTimeoutNs}));
  }
  void RunCollectives() {
    RunSteps(true, false, [this](const Call& call) { RunCotune(call); });
  }
  void RunParts() { RunSteps(false, true, {}); }
  void RunByMpi() {
    RunSteps(true, true, [this](const Call& call) { RunMpi(call); });
  }

  // All outputs count, also those that overwrite inputs.
  std::vector<std::vector<std::byte>> Outputs() const {
    std::vector<std::vector<std::byte>> all;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::byte* const begin = AddressOfOutput(i);
      const uint64_t bytes = program_.BytesOf(program_.graph().outputs()[i].value, rows_);
      all.emplace_back(begin, begin + bytes);
    }
    return all;
  }

 private:
  std::byte* AddressOfOutput(size_t output) const {
    const int32_t into = program_.graph().outputs()[output].into;
    return into < 0 ? outputs_[output].data() : inputs_[static_cast<size_t>(into)].data();
  }

  std::unique_ptr<Plan> PlanOf(const RecipeStep& step) const {
    if (!step.is_part()) return nullptr;
    Backend* const backend = job_.groups().program_support().part_backend;
    if (backend == nullptr) Die("no backend has parts");
    return Value(backend->PreparePart({.part = step.program,
                                       .rows = rows_,
                                       .memory = MemoryKind::kHost,
                                       .world_size = job_.world_size()},
                                      job_.clock().now_ns() + kTimeoutNs));
  }

  void RunSteps(bool with_collectives, bool with_parts,
                const std::function<void(const Call&)>& run_collective) {
    for (size_t i = 0; i < recipe_.steps.size(); ++i) {
      const RecipeStep& step = recipe_.steps[i];
      if (step.backend_step() != nullptr && with_collectives) run_collective(CallOf(step));
      if (step.is_part() && with_parts) RunPart(step, *parts_[i]);
    }
  }

  void RunPart(const RecipeStep& step, Plan& plan) const {
    std::array<const void*, 64> inputs{};
    std::array<void*, 64> outputs{};
    for (size_t i = 0; i < step.inputs.size(); ++i) inputs[i] = At(step.inputs[i]);
    for (size_t i = 0; i < step.outputs.size(); ++i) outputs[i] = At(step.outputs[i]);
    LaunchArguments arguments;
    arguments.deadline_ns = INT64_MAX;
    arguments.inputs = std::span(inputs).first(step.inputs.size());
    arguments.outputs = std::span(outputs).first(step.outputs.size());
    Value(plan.Run(arguments, job_.clock()));
  }

  void* At(SlotIndex slot) const { return slots_[static_cast<size_t>(slot)]; }

  Call CallOf(const RecipeStep& step) const {
    const Problem problem = program_.ProblemOf(step.backend_step()->first(), rows_, 0);
    return {.collective = problem.cls.collective,
            .dtype = problem.cls.dtype,
            .reduction = problem.cls.reduction,
            .root = problem.cls.root,
            .count = problem.count,
            .send = At(step.inputs.front()),
            .recv = At(step.outputs.front()),
            .timeout_ns = kTimeoutNs};
  }

  void RunCotune(const Call& call) { Value(dispatcher_.Run(call)); }

  static void RunMpi(const Call& call) {
    const int count = static_cast<int>(call.count);
    const int bytes = static_cast<int>(call.count * SizeBytes(call.dtype));
    static const MPI_Op bf16_sum = [] {
      MPI_Op op{};
      MPI_Op_create(SumBf16, 1, &op);
      return op;
    }();
    const bool is_bf16 = call.dtype == Dtype::kBf16;
    const bool reduces =
        call.collective == Collective::kAllReduce || call.collective == Collective::kReduceScatter;
    if (reduces && (call.reduction != Reduction::kSum || (!is_bf16 && call.dtype != Dtype::kF32))) {
      Die("programs with sums of f32 or bf16 only");
    }
    const MPI_Datatype type = is_bf16 ? MPI_UINT16_T : MPI_FLOAT;
    const MPI_Op op = is_bf16 ? bf16_sum : MPI_SUM;
    switch (call.collective) {
      case Collective::kAllReduce:
        MPI_Allreduce(call.send == call.recv ? MPI_IN_PLACE : call.send, call.recv, count, type, op,
                      MPI_COMM_WORLD);
        return;
      case Collective::kReduceScatter:
        MPI_Reduce_scatter_block(call.send, call.recv, count, type, op, MPI_COMM_WORLD);
        return;
      case Collective::kAllGather:
        MPI_Allgather(call.send, bytes, MPI_BYTE, call.recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
        return;
      case Collective::kAllToAll:
        MPI_Alltoall(call.send, bytes, MPI_BYTE, call.recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
        return;
      case Collective::kBroadcast:
        Die("programs without a broadcast only");
    }
  }

  Job& job_;
  Dispatcher& dispatcher_;
  const Program& program_;
  const uint64_t rows_;
  const Recipe recipe_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  std::unique_ptr<Buffer> temporaries_;
  std::vector<void*> slots_;
  std::vector<std::unique_ptr<Plan>> parts_;  // nullptr for a collective
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

struct Contender {
  const char* name;
  std::function<void()> run;
};

double SampleSeconds(const Contender& contender, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < calls; ++i) contender.run();
  return LargestOverRanks(MPI_Wtime() - begin) / calls;
}

// Microseconds of each contender, ascending.
std::vector<std::vector<double>> Measure(const std::vector<Contender>& contenders, int rounds) {
  std::vector<int> calls;
  for (const Contender& each : contenders) {
    double call = INFINITY;
    for (int i = 0; i < 3; ++i) call = std::min(call, SampleSeconds(each, 4));
    calls.push_back(std::clamp(static_cast<int>(kSampleSeconds / call), 4, kMaxCalls));
  }
  std::vector<std::vector<double>> samples(contenders.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(round)) % contenders.size();
      samples[at].push_back(SampleSeconds(contenders[at], calls[at]) * 1e6);
    }
  }
  for (auto& each : samples) std::sort(each.begin(), each.end());
  return samples;
}

void CheckEqualOutputs(Workload& workload, const std::string& name) {
  workload.FillInputs();
  workload.RunProgram();
  const auto own = workload.Outputs();
  workload.FillInputs();
  workload.RunByMpi();
  if (workload.Outputs() != own) Die(name + ": Open MPI with parts gives other bits");
  workload.FillInputs();
}

void Report(const std::string& name, const Program& program, uint64_t rows,
            const std::vector<Contender>& contenders,
            const std::vector<std::vector<double>>& samples, const std::string& winner) {
  const uint64_t bytes = program.ProblemAtRows(rows, 0).bytes();
  nlohmann::json line = {{"program", name},
                         {"ranks", program.group().world_size},
                         {"rows", rows},
                         {"bytes", bytes},
                         {"winner", winner}};
  std::printf("%-20s %6llu %10llu", name.c_str(), static_cast<unsigned long long>(rows),
              static_cast<unsigned long long>(bytes));
  for (size_t i = 0; i < contenders.size(); ++i) {
    std::printf("%14.2f", samples[i][samples[i].size() / 2]);
    line["us"][contenders[i].name] = samples[i];
  }
  std::printf("  %s\n", winner.c_str());
  std::fflush(stdout);
  if (const char* path = std::getenv("BENCHMARK_OUT"); path != nullptr) {
    std::ofstream json(path, std::ios::app);
    if (!json) Die(std::string("cannot write ") + path);
    json << line << std::endl;
  }
}

// The numbers of rows that a program is measured at.
std::vector<uint64_t> RowsOf(const Program& program, const Options& options) {
  if (!program.graph().has_rows()) return {1};
  std::vector<uint64_t> rows;
  for (const uint64_t each : options.rows) {
    const auto ranks = static_cast<uint64_t>(program.group().world_size);
    if (!program.graph().needs_whole_shares() || each % ranks == 0) rows.push_back(each);
  }
  return rows;
}

// Tunes the programs and, by themselves, their collectives.
void Tune(Job& job, Dispatcher& dispatcher, const std::vector<Program>& programs,
          const Options& options) {
  TuneRequest request;
  for (const Program& program : programs) {
    std::vector<uint64_t> sizes;
    for (const uint64_t rows : RowsOf(program, options)) {
      sizes.push_back(program.ProblemAtRows(rows, 0).bytes());
      for (const size_t node : program.graph().collectives()) {
        const Problem alone = program.ProblemOf(node, rows, 0);
        request.nodes.push_back({Value(Program::SingleCollective(alone.cls)), {alone.bytes()}});
      }
    }
    if (!sizes.empty() && !program.is_single_collective())
      request.nodes.push_back({program, sizes});
  }
  request.cotune_version = CotuneVersion();
  dispatcher.SetTable(Value(RunTune(job, request)).outcome.table);
}

// Made by rank 0, known to all.
std::string CommonFolder(int rank) {
  std::array<char, 64> path{};
  if (rank == 0) {
    std::strcpy(path.data(), "/tmp/programs_bench.XXXXXX");
    if (mkdtemp(path.data()) == nullptr) Die("cannot make a folder in /tmp");
  }
  MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  return path.data();
}

void MeasurePrograms(const Options& options, const std::string& folder, int rank, int world_size) {
  JobOptions job_options;
  job_options.context = {"bench", rank, world_size, rank, world_size, "job", folder + "/s"};
  job_options.catalogue.tables = {host::BackendApi()};
  const auto job = Value(Job::Join(job_options));
  Dispatcher dispatcher(*job);
  std::vector<Program> programs;
  for (const std::string& file : options.files) {
    programs.push_back(Value(Program::Bind(Value(ProgramGraph::Parse(ReadFile(file))),
                                           {MemoryKind::kHost, world_size, world_size})));
  }
  Tune(*job, dispatcher, programs, options);
  if (rank == 0) {
    std::printf("\n%d ranks\n%-20s %6s %10s%14s%14s%14s%14s  winner\n", world_size, "program",
                "rows", "bytes", "collective_us", "part_us", "program_us", "openmpi_us");
  }
  for (const Program& program : programs) {
    const std::string name = program.graph().name();
    for (const uint64_t rows : RowsOf(program, options)) {
      Workload workload(*job, dispatcher, program, rows);
      CheckEqualOutputs(workload, name);
      const std::vector<Contender> contenders = {{"collective", [&] { workload.RunCollectives(); }},
                                                 {"part", [&] { workload.RunParts(); }},
                                                 {"program", [&] { workload.RunProgram(); }},
                                                 {"openmpi", [&] { workload.RunByMpi(); }}};
      const auto samples = Measure(contenders, options.rounds);
      const std::string winner =
          Value(dispatcher.Explain(ProgramCall{.graph = &program.graph(), .rows = rows}))
              .choice.text();
      if (rank == 0) Report(name, program, rows, contenders, samples, winner);
    }
  }
}

int RunRank(const Options& options) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  const std::string folder = CommonFolder(rank);
  MeasurePrograms(options, folder, rank, world_size);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::filesystem::remove_all(folder);
  MPI_Finalize();
  return 0;
}

// Replaces a child by mpirun with this program; its exit code.
int RunUnderMpirun(int ranks, char** argv) {
  const pid_t child = fork();
  if (child < 0) Die("cannot fork");
  if (child == 0) {
    const std::string count = std::to_string(ranks);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<const char*> words = {"mpirun", "--allow-run-as-root", "--oversubscribe",
                                      "-n",     count.c_str(),         self.c_str()};
    for (char** each = argv + 1; *each != nullptr; ++each) words.push_back(*each);
    words.push_back(nullptr);
    execvp(words[0], const_cast<char**>(words.data()));
    Die("cannot start mpirun (Debian: openmpi-bin)");
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace cotune::bench

int main(int argc, char** argv) {
  using namespace cotune::bench;
  Options options;
  CLI::App app("Programs on host memory beside Open MPI with the same parts.");
  app.add_option("--ranks", options.ranks, "numbers of processes")->delimiter(',');
  app.add_option("--rows", options.rows, "numbers of rows")->delimiter(',');
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("files", options.files, "program texts")->required();
  CLI11_PARSE(app, argc, argv);
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return RunRank(options);
  for (const int ranks : options.ranks) {
    if (const int code = RunUnderMpirun(ranks, argv); code != 0) return code;
  }
  return 0;
}
