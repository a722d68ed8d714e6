#include <memory>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/program_buffers.h"
#include "tests/gpu/program_choices.h"
#include "tests/gpu/program_values.h"

namespace cotune::gputest {
namespace {

constexpr uint32_t kDataSets = 3;
// A program at one size, with its data.
struct SizedProgram {
  const std::string& name;
  const Program& program;
  uint64_t rows;
  std::vector<ProgramValues> data;  // a salt each
};

// One call, or one replay of a captured one, on data of its own.
class CheckedCalls {
 public:
  CheckedCalls(Rank& rank, const SizedProgram& sized, ChoiceCaller& caller, ProgramBuffers& buffers)
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
    const ProgramValues& data = sized_.data[calls_++ % sized_.data.size()];
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
  const SizedProgram& sized_;
  ChoiceCaller& caller_;
  ProgramBuffers& buffers_;
  size_t calls_ = 0;
};

Status RunSized(Rank& rank, const SizedProgram& sized, int64_t replays) {
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
      SizedProgram sized{text.name, program, rows, {}};
      for (uint32_t salt = 0; salt < kDataSets; ++salt) {
        COTUNE_TRY(auto values, ValuesOf(program, rows, job.rank(), salt));
        sized.data.push_back(std::move(values));
      }
      if (Status s = RunSized(rank, sized, flags.Number("replays", 5)); !s) return s;
      if (!program.graph().has_rows()) break;
    }
  }
  return {};
}

}  // namespace cotune::gputest
