// The host backend runs operations inside of its collectives with the bits of the unfused program:
// in real processes, in many chunks, within the bounds of the operands, and also if each rank
// runs other operations with the same collective.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/base/float16.h"
#include "core/choice/choice_lists.h"
#include "core/problem/program.h"
#include "core/problem/tuning_settings.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"
#include "integration/job.h"
#include "plugins/host/backend.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

constexpr int64_t kPatienceNs = 300 * kSecondNs;
constexpr size_t kGuardBytes = 192;
constexpr std::byte kGuard{0xA7};
using Bytes = std::vector<std::byte>;

struct FusedProgram {
  const char* name;
  const char* text;
  std::vector<uint64_t> rows;
};

// Each collective with operations before it, after it, and on both sides, in the dtypes and shapes
// at which ranges of rows may go wrong: columns that are no multiple of a cache line, one column,
// rows larger than a piece of the collective, values of one row, and outputs that overwrite inputs.
const std::vector<FusedProgram>& Programs() {
  static const std::vector<FusedProgram> programs = {
      {"residual norm",
       "%x = input bf16 [R, 129]\n%residual = input bf16 [R, 129] replicated\n"
       "%gamma = input bf16 [1, 129] replicated\n%sum = all_reduce sum %x\n"
       "%stream = add %sum, %residual\n%y = rms_norm %stream, %gamma, eps=1e-6\n"
       "return %y, %stream into %residual\n",
       {1, 3, 200, 1500}},
      {"wide rows",
       "%x = input f32 [R, 6001]\n%b = input f32 [1, 6001]\n%g = input f32 [1, 6001]\n"
       "%s = all_reduce average %x\n%t = add %s, %b\n%y = rms_norm %t, %g, eps=1e-5\n"
       "return %y, %s\n",
       {1, 2, 37}},
      {"elements",
       "%x = input f16 [R, 33]\n%s = all_reduce max %x\n%t = mul %s, 0.5\n%y = relu %t\n"
       "return %y\n",
       {1, 5, 3001}},
      {"the sum is an output in given memory",
       "%x = input f32 [R, 40]\n%r = input f32 [R, 40]\n%memory = input f32 [R, 40]\n"
       "%s = all_reduce sum %x\n%y = mul %s, %r\nreturn %y into %r, %s into %memory\n",
       {1, 1000}},
      {"both sides",
       "%x = input f32 [R, 65]\n%w = input f32 [R, 1]\n%b = input f32 [1, 65]\n"
       "%p = mul %x, %w\n%q = gelu_tanh %p\n%s = all_reduce sum %q\n%t = add %s, %b\n"
       "%y = tanh %t\nreturn %y\n",
       {1, 2, 777}},
      {"quantized",
       "%x = input bf16 [R, 96]\n%s = all_reduce sum %x\n%scale = quantize_scale %s, to=f8_e4m3\n"
       "%q = quantize %s, %scale, to=f8_e4m3\nreturn %q, %scale\n",
       {1, 600}},
      {"one column",
       "%x = input f32 [R, 1]\n%z = input f32 [R, 70]\n%s = all_reduce sum %x\n"
       "%y = mul %z, %s\nreturn %y\n",
       {1, 900}},
      {"one row",
       "%x = input f64 [1, 5000]\n%d = input f64 [1, 5000]\n%e = mul %x, %d\n"
       "%s = all_reduce sum %e\n%y = add %s, %d\nreturn %y\n",
       {1}},
      {"integers",
       "%x = input u8 [R, 3]\n%k = input u8 [R, 3]\n%h = max %x, %k\n%s = all_reduce sum %h\n"
       "%t = max %s, %k\nreturn %t, %s\n",
       {1, 50000}},
      {"reduce_scatter",
       "%x = input bf16 [R, 31]\n%w = input bf16 [R, 31]\n%g = input bf16 [1, 31]\n"
       "%p = mul %x, %w\n%s = reduce_scatter sum %p\n%y = rms_norm %s, %g, eps=1e-6\n"
       "return %y\n",
       {1, 4, 900}},
      {"all_gather",
       "%x = input f32 [R/n, 70]\n%b = input f32 [1, 70]\n%r = input f32 [R, 70]\n"
       "%p = add %x, %b\n%s = all_gather %p\n%y = mul %s, %r\nreturn %y into %r\n",
       {1, 300}},
      {"all_to_all",
       "%x = input f16 [R, 48]\n%w = input f16 [R, 1]\n%p = mul %x, %w\n%s = all_to_all %p\n"
       "%y = silu %s\nreturn %y into %x\n",
       {1, 500}},
      {"all_to_all of an input",
       "%x = input f32 [R, 24]\n%r = input f32 [R, 24]\n%s = all_to_all %x\n%t = add %s, %r\n"
       "return %t into %r\n",
       {1, 800}},
      {"broadcast",
       "%x = input i32 [R, 17]\n%k = input i32 [R, 17]\n%s = broadcast %x, root=0\n%t = add %s, "
       "%k\n"
       "%y = max %t, 5\nreturn %y into %k\n",
       {1, 3000}},
  };
  return programs;
}

// Random bits of each input; the same on all ranks where the program promises that. Floats have
// magnitudes between 2^-6 and 2^6, so that sums depend on the order of additions.
Bytes RandomInput(const ProgramGraph& graph, ValueIndex input, uint64_t bytes, int rank) {
  const uint64_t of_rank = graph.is_replicated(input) ? 0 : 1 + static_cast<uint64_t>(rank);
  std::mt19937_64 random(static_cast<uint64_t>(input) * 50 + of_rank);
  const auto value = [&] {
    const double fraction = 1 + std::ldexp(static_cast<double>(random() >> 11), -53);
    return std::ldexp(random() % 2 == 0 ? fraction : -fraction,
                      static_cast<int>(random() % 12) - 6);
  };
  const Dtype dtype = graph.type(input).dtype;
  Bytes data(bytes);
  for (uint64_t at = 0; at < bytes; at += SizeBytes(dtype)) {
    const auto put = [&](const auto& element) {
      std::memcpy(data.data() + at, &element, sizeof(element));
    };
    switch (dtype) {
      case Dtype::kF64:
        put(value());
        break;
      case Dtype::kF32:
        put(static_cast<float>(value()));
        break;
      case Dtype::kBf16:
        put(Bf16FromF32(static_cast<float>(value())));
        break;
      case Dtype::kF16:
        put(F16FromF32(static_cast<float>(value())));
        break;
      default:
        for (uint64_t i = 0; i < SizeBytes(dtype); ++i) {
          data[at + i] = static_cast<std::byte>(random() % 64);
        }
    }
  }
  return data;
}

// An operand between guards, one element past an aligned address.
class GuardedBytes {
 public:
  GuardedBytes(const Bytes& bytes, uint64_t element_bytes)
      : begin_(kGuardBytes + element_bytes), memory_(begin_ + bytes.size() + kGuardBytes, kGuard) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }
  std::byte* data() { return memory_.data() + begin_; }
  Bytes bytes() const {
    return {memory_.begin() + static_cast<std::ptrdiff_t>(begin_),
            memory_.end() - static_cast<std::ptrdiff_t>(kGuardBytes)};
  }
  bool is_whole() const {
    const auto is_guard = [](std::byte each) { return each == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(begin_),
                       is_guard) &&
           std::all_of(memory_.end() - static_cast<std::ptrdiff_t>(kGuardBytes), memory_.end(),
                       is_guard);
  }

 private:
  size_t begin_;
  Bytes memory_;
};

class FusedRun {
 public:
  FusedRun(Job& job, const Program& program, uint64_t rows)
      : job_(job),
        graph_(program.graph()),
        rows_(graph_.needs_whole_shares() ? rows * static_cast<uint64_t>(job.world_size()) : rows),
        program_(program),
        problem_(program_.ProblemAtRows(rows_, job.topology_digest())) {}

  // Runs the choices of one name, with operations and without, in one call: each rank runs another
  // one of those that fit any region, and in the next call the one after it. "" if all bits are
  // those of the choice without operations on all ranks. Counts the calls in which ranks differ.
  std::string CompareMixed(int& mixed) {
    std::map<std::string, std::vector<Choice>> of_name;
    for (const Choice& choice : ListChoicesOf(job_.groups(), program_, problem_).choices) {
      const bool is_bare = !choice.id.has_host_keys();
      const bool fits = is_bare || (choice.fits_any_region && !FuseOf(choice).empty() &&
                                    choice.id.HostKey("via").empty());
      if (!fits) continue;
      std::vector<Choice>& known = of_name[choice.id.WithoutHostKeys().text()];
      known.insert(is_bare ? known.begin() : known.end(), choice);
    }
    for (const auto& [name, choices] : of_name) {
      if (choices.size() == 1 || choices.front().id.has_host_keys()) continue;
      std::string wrong;
      const std::vector<Bytes> expected = OutputsOf(choices.front(), wrong);
      for (size_t call = 0; wrong.empty() && call < choices.size(); ++call) {
        const Choice& own = choices[(call + static_cast<size_t>(job_.rank())) % choices.size()];
        const bool is_equal = OutputsOf(own, wrong) == expected;
        if (wrong.empty() && !is_equal) wrong = own.id.text() + " has other bits";
        if (job_.world_size() > 1) ++mixed;
      }
      if (!wrong.empty()) return name + ": " + wrong;
    }
    return "";
  }

  // Compares all fused choices with the unfused ones of their numerics class; "" if all bits are
  // equal. Counts the fused choices by their keys.
  std::string Compare(std::map<std::string, int>& fused) {
    std::map<std::string, std::vector<Bytes>> unfused;  // outputs by class
    const std::vector<Choice> choices = ListChoicesOf(job_.groups(), program_, problem_).choices;
    for (const bool is_fused : {false, true}) {
      for (const Choice& choice : choices) {
        const std::string fuse = FuseOf(choice);
        if (fuse.empty() == is_fused) continue;
        std::string wrong;
        std::vector<Bytes> outputs = OutputsOf(choice, wrong);
        if (!wrong.empty()) return choice.id.text() + ": " + wrong;
        if (!is_fused) {
          unfused.emplace(choice.numerics, std::move(outputs));
          continue;
        }
        ++fused[fuse];
        const auto expected = unfused.find(choice.numerics);
        if (expected == unfused.end()) return choice.id.text() + ": a class of its own";
        for (size_t i = 0; i < outputs.size(); ++i) {
          if (const size_t at = FirstDifference(outputs[i], expected->second[i]);
              at < outputs[i].size()) {
            return fmt::format("{} ({}): output {} differs from byte {} of {} on", choice.id.text(),
                               choice.numerics, i, at, outputs[i].size());
          }
        }
      }
    }
    return "";
  }

 private:
  // The keys `fuse` of all steps; empty if none has one.
  static std::string FuseOf(const Choice& choice) {
    std::string all;
    for (const ChoiceId& step : choice.id.steps()) {
      const std::string fuse = step.HostKey("fuse");
      if (!fuse.empty()) all += (all.empty() ? "" : "+") + fuse;
    }
    return all;
  }

  static size_t FirstDifference(const Bytes& left, const Bytes& right) {
    return static_cast<size_t>(std::mismatch(left.begin(), left.end(), right.begin()).first -
                               left.begin());
  }

  std::vector<Bytes> OutputsOf(const Choice& choice, std::string& wrong) {
    std::vector<GuardedBytes> inputs;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      inputs.emplace_back(RandomInput(graph_, value, program_.BytesOf(value, rows_), job_.rank()),
                          SizeBytes(graph_.type(value).dtype));
    }
    std::vector<GuardedBytes> outputs;
    outputs.reserve(graph_.outputs().size());
    std::vector<const void*> from;
    std::vector<void*> to;
    for (GuardedBytes& input : inputs) from.push_back(input.data());
    for (const ProgramOutput& output : graph_.outputs()) {
      const uint64_t bytes = output.into < 0 ? program_.BytesOf(output.value, rows_) : 0;
      outputs.emplace_back(Bytes(bytes), SizeBytes(graph_.type(output.value).dtype));
      to.push_back(output.into < 0 ? outputs.back().data()
                                   : inputs[static_cast<size_t>(output.into)].data());
    }
    auto caller = MakeCaller(job_.groups(), program_, problem_, choice);
    Status ran = caller ? Status() : Status(Propagate(caller));
    if (ran) ran = (*caller)->Precompile(job_.clock().now_ns() + 60 * kSecondNs);
    LaunchArguments arguments;
    arguments.inputs = from;
    arguments.outputs = to;
    // A collective without operations is no program for a caller.
    arguments.send = from.front();
    arguments.recv = to.front();
    arguments.deadline_ns = job_.clock().now_ns() + 60 * kSecondNs;
    if (ran) ran = (*caller)->Launch(arguments, job_.clock());
    if (!ran) wrong = ran.error().ToText();
    std::vector<Bytes> all;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int32_t into = graph_.outputs()[i].into;
      all.push_back(into < 0 ? outputs[i].bytes() : inputs[static_cast<size_t>(into)].bytes());
      if (!outputs[i].is_whole()) wrong += fmt::format("wrote beyond output {}; ", i);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].is_whole()) wrong += fmt::format("wrote beyond input {}; ", i);
      const auto value = static_cast<ValueIndex>(i);
      const bool is_overwritten =
          std::any_of(graph_.outputs().begin(), graph_.outputs().end(),
                      [&](const ProgramOutput& output) { return output.into == value; });
      if (!is_overwritten &&
          inputs[i].bytes() !=
              RandomInput(graph_, value, program_.BytesOf(value, rows_), job_.rank())) {
        wrong += fmt::format("input {} has changed; ", i);
      }
    }
    return all;
  }

  Job& job_;
  const ProgramGraph& graph_;
  const uint64_t rows_;
  const Program& program_;
  const Problem problem_;
};

Result<Program> ProgramOf(const Job& job, const std::string& text) {
  COTUNE_TRY(const ProgramGraph graph, ProgramGraph::Parse(text));
  return Program::Bind(graph, {MemoryKind::kHost, job.world_size(), job.world_size()});
}

class ProgramFused : public ::testing::TestWithParam<int> {
 protected:
  // Runs a body on each rank of a job whose slots have 64 KiB, so that small problems take many
  // chunks.
  static void OnRanks(const std::function<std::string(Job&)>& body) {
    const int world_size = GetParam();
    const PrivateFolder folder;
    RankProcesses ranks;
    std::vector<size_t> all(static_cast<size_t>(world_size));
    std::iota(all.begin(), all.end(), size_t{0});
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.Start([&, rank](TestLink& link) {
        JobOptions options;
        options.context = {"test", rank, world_size, rank, world_size, "job", folder.path() + "/s"};
        options.catalogue.tables = {host::BackendApi()};
        options.catalogue.settings = {{"host.slot_bytes", "65536"}};
        Result<std::unique_ptr<Job>> job = Job::Join(options);
        const std::string wrong = job ? body(**job) : job.error().ToText();
        if (!wrong.empty()) link.Report("wrong " + wrong);
        return wrong.empty() ? 0 : 1;
      });
    }
    ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
    for (const size_t rank : all) EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
  }
};

TEST_P(ProgramFused, HasTheBitsOfTheUnfusedProgram) {
  OnRanks([](Job& job) -> std::string {
    for (const FusedProgram& each : Programs()) {
      std::map<std::string, int> fused;
      for (const uint64_t rows : each.rows) {
        const Result<Program> program = ProgramOf(job, each.text);
        if (!program) return fmt::format("{}: {}", each.name, program.error().ToText());
        const std::string wrong = FusedRun(job, *program, rows).Compare(fused);
        if (!wrong.empty()) return fmt::format("{}, {} rows: {}", each.name, rows, wrong);
      }
      if (fused.empty()) return fmt::format("{}: nothing is fused", each.name);
    }
    return "";
  });
}

// The exhaustive run has more of them.
TEST_P(ProgramFused, OfRandomProgramsHasTheBitsOfTheUnfusedProgram) {
  const char* const wanted = std::getenv("COTUNE_TEST_RANDOM_PROGRAMS");
  const uint64_t programs = wanted != nullptr ? std::stoull(wanted) : 24;
  OnRanks([programs](Job& job) -> std::string {
    std::map<std::string, int> fused;
    for (uint64_t seed = 0; seed < programs; ++seed) {
      const std::string text = RandomProgram(
          300'000 + seed * 8 + static_cast<uint64_t>(job.world_size()), job.world_size(), 1);
      const uint64_t rows = seed % 3 == 0 ? 600 : 1 + seed % 24 * 7;
      const Result<Program> program = ProgramOf(job, text);
      if (!program) return program.error().ToText() + "\n" + text;
      const std::string wrong = FusedRun(job, *program, rows).Compare(fused);
      if (!wrong.empty()) return fmt::format("seed {}, {} rows: {}\n{}", seed, rows, wrong, text);
    }
    // Regions of several shapes: operations before the collective, and several after it.
    const auto has = [&](const std::string& part) {
      return std::any_of(fused.begin(), fused.end(), [&](const auto& each) {
        return each.first.find(part) != std::string::npos;
      });
    };
    return has("-1") && has("1.2") ? "" : fmt::format("{} kinds of regions only", fused.size());
  });
}

TEST_P(ProgramFused, HasTheSameBitsBesideRanksThatFuseOtherOperations) {
  constexpr uint64_t kPrograms = 12;
  OnRanks([](Job& job) -> std::string {
    int mixed = 0;
    const auto compare = [&](const std::string& text, uint64_t rows) -> std::string {
      const Result<Program> program = ProgramOf(job, text);
      if (!program) return program.error().ToText() + "\n" + text;
      const std::string wrong = FusedRun(job, *program, rows).CompareMixed(mixed);
      return wrong.empty() ? "" : fmt::format("{} rows: {}\n{}", rows, wrong, text);
    };
    for (const FusedProgram& each : Programs()) {
      for (const uint64_t rows : each.rows) {
        if (std::string wrong = compare(each.text, rows); !wrong.empty()) return wrong;
      }
    }
    for (uint64_t seed = 0; seed < kPrograms; ++seed) {
      const std::string text = RandomProgram(
          400'000 + seed * 8 + static_cast<uint64_t>(job.world_size()), job.world_size(), 1);
      if (std::string wrong = compare(text, seed % 3 == 0 ? 600 : 1 + seed * 7); !wrong.empty()) {
        return wrong;
      }
    }
    return job.world_size() == 1 || mixed > 150 ? "" : fmt::format("{} mixed calls only", mixed);
  });
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ProgramFused, ::testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace cotune
