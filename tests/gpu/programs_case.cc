#include <memory>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/program_buffers.h"
#include "tests/gpu/program_choices.h"
#include "tests/gpu/program_values.h"

namespace cotune::gputest {
namespace {

// The number of calls after which data repeats, a prime number: all choices use the same scratch
// memory, where the data of earlier calls must not be right. Kernels keep a few steps there.
constexpr size_t kDataSets = 31;

// A program at one size, and the data of its calls.
class SizedProgram {
 public:
  SizedProgram(const std::string& name_of_program, const Program& bound, uint64_t with_rows)
      : name(name_of_program), program(bound), rows(with_rows) {}

  const std::string& name;
  const Program& program;
  const uint64_t rows;

  // The data of the next call, whichever choice makes it.
  Result<const ProgramValues*> NextData(Rank& rank) {
    const size_t set = calls_++ % kDataSets;
    if (set == data_.size()) {
      COTUNE_TRY(auto values, ValuesOf(program, rows, rank.job().rank(), rank.TakeSalts(1)));
      data_.push_back(std::make_unique<ProgramValues>(std::move(values)));
    }
    return data_[set].get();
  }

 private:
  size_t calls_ = 0;
  std::vector<std::unique_ptr<ProgramValues>> data_;
};

// One call, or one replay of a captured one, on data of its own.
class CheckedCalls {
 public:
  CheckedCalls(Rank& rank, SizedProgram& sized, ChoiceCaller& caller, ProgramBuffers& buffers)
      : rank_(rank), sized_(sized), caller_(caller), buffers_(buffers) {}

  Status Plain() {
    return Checked("plain call", [&] { return caller_.Launch(Arguments(), rank_.job().clock()); });
  }

  Status InGraph(int64_t replays) {
    Device& device = rank_.job().device();
    if (device.kind() == MemoryKind::kCuda && !caller_.is_capturable()) return {};
    const LaunchArguments arguments = Arguments();
    COTUNE_TRY(const auto captured, caller_.PrepareTimed(device, {&arguments, 1}, 1));
    for (int64_t i = 0; i < replays; ++i) {
      COTUNE_TRY(const int64_t moment,
                 device.aligns_ranks() ? rank_.Meet(rank_.job(), "replay") : Result<int64_t>(0));
      Status done = Checked(fmt::format("replay {}", i), [&]() -> Status {
        const auto span = captured->Run(moment, rank_.CallDeadline());
        return span ? Status() : Propagate(span);
      });
      if (!done) return done;
    }
    return {};
  }

 private:
  LaunchArguments Arguments() const {
    LaunchArguments arguments;
    arguments.inputs = buffers_.inputs();
    arguments.outputs = buffers_.outputs();
    arguments.stream = rank_.job().device().stream();
    arguments.deadline_ns = rank_.CallDeadline();
    if (sized_.program.is_single_collective()) {
      arguments.send = arguments.inputs.front();
      arguments.recv = arguments.outputs.front();
    }
    return arguments;
  }

  template <class Launch>
  Status Checked(const std::string& what, const Launch& launch) {
    COTUNE_TRY(const ProgramValues* const filled, sized_.NextData(rank_));
    const ProgramValues& data = *filled;
    if (Status s = buffers_.Fill(data); !s) return s;
    if (Status s = launch(); !s) return s;
    if (Status s = rank_.Await(rank_.job()); !s) return s;
    ++rank_.findings().calls;
    COTUNE_TRY(const std::string wrong, buffers_.WhatIsWrong(data));
    if (!wrong.empty()) {
      rank_.findings().Wrong(fmt::format("rank {}: {} of {} rows by {}, {}: {}", rank_.job().rank(),
                                         sized_.name, sized_.rows, caller_.id().text(), what,
                                         wrong));
    }
    return {};
  }

  Rank& rank_;
  SizedProgram& sized_;
  ChoiceCaller& caller_;
  ProgramBuffers& buffers_;
};

Status RunSized(Rank& rank, SizedProgram& sized, int64_t replays) {
  COTUNE_TRY(const auto callers, ChoicesOf(rank, sized.name, sized.program, sized.rows));
  for (const auto& caller : callers) {
    for (const BackendMember* const member : caller->members()) {
      ++rank.findings().choices_by_backend[member->backend->name()];
    }
  }
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}}) {
    COTUNE_TRY(auto buffers,
               ProgramBuffers::Allocate(rank.job().device(), sized.program, sized.rows, offset));
    for (const auto& caller : callers) {
      CheckedCalls calls(rank, sized, *caller, *buffers);
      Status done = calls.Plain();
      if (done && offset == 0) done = calls.InGraph(replays);
      if (!done) return Fail(done.error().code, done.error().ToText(), caller->id().text());
      rank.findings().RanProgram(sized.name, caller->id());
    }
  }
  return {};
}

}  // namespace

Status RunPrograms(Rank& rank, const Flags& flags) {
  Job& job = rank.job();
  COTUNE_TRY(const auto texts, ProgramTexts(flags, job.world_size()));
  for (const ProgramText& text : texts) {
    COTUNE_TRY(const Program program, BoundTo(job, text));
    for (const std::string& wanted : flags.List("rows", "1,7,100")) {
      const uint64_t rows = FittingRows(program.graph(), std::strtoull(wanted.c_str(), nullptr, 10),
                                        job.world_size());
      SizedProgram sized(text.name, program, rows);
      if (Status s = RunSized(rank, sized, flags.Number("replays", 5)); !s) return s;
      if (!program.graph().has_rows()) break;
    }
  }
  return {};
}

}  // namespace cotune::gputest
