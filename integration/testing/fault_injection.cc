#include "integration/testing/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <optional>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr char kFormat[] = "STAGE[.end]@RANK:kill|stop|exit|delay=MS, and :N for the Nth time";
constexpr int kFaultExitCode = 86;

bool ParseNumber(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

std::string StageNames() {
  std::string names;
  for (int i = 0; i < kStages; ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : ", ", Name(static_cast<Stage>(i)));
  }
  return names;
}

bool ParseAction(std::string_view text, Fault& fault) {
  int64_t delay_ms = 0;
  if (text == "kill") {
    fault.action = Fault::Action::kKill;
  } else if (text == "stop") {
    fault.action = Fault::Action::kStop;
  } else if (text == "exit") {
    fault.action = Fault::Action::kExit;
  } else if (text.starts_with("delay=") && ParseNumber(text.substr(6), delay_ms)) {
    fault.action = Fault::Action::kDelay;
    fault.delay_ns = delay_ms * 1'000'000;
  } else {
    return false;
  }
  return true;
}

void CarryOut(const Fault& fault) {
  switch (fault.action) {
    case Fault::Action::kKill:
      kill(getpid(), SIGKILL);
      break;
    case Fault::Action::kStop:
      kill(getpid(), SIGSTOP);
      break;
    case Fault::Action::kExit:
      _exit(kFaultExitCode);
    case Fault::Action::kDelay: {
      timespec left{fault.delay_ns / 1'000'000'000, fault.delay_ns % 1'000'000'000};
      while (nanosleep(&left, &left) != 0) {
      }
      break;
    }
  }
}

class FaultListener final : public StageObserver {
 public:
  FaultListener(const Fault& fault, int rank) : fault_(fault), rank_(rank) {}

  void OnEvent(const Event& event) override {
    const bool is_its_stage =
        (fault_.is_at_end ? StageEndedBy(event) : StageBegunBy(event)) == fault_.stage;
    if (is_its_stage && rank_ == fault_.rank && ++seen_ == fault_.nth) CarryOut(fault_);
  }

 private:
  const Fault fault_;
  const int rank_;
  int32_t seen_ = 0;
};

}  // namespace

Result<Fault> ParseFault(std::string_view text, int world_size) {
  const auto malformed = [&](std::string_view part) {
    return Fail(ErrorCode::kUsage, fmt::format("'{}' is not a fault", text), "COTUNE_FAULT",
                fmt::format("cannot read '{}'", part),
                fmt::format("write {}; stages: {}", kFormat, StageNames()));
  };
  Fault fault;
  constexpr std::string_view kEnd = ".end";
  const size_t at = text.find('@');
  std::string_view name = text.substr(0, at);
  fault.is_at_end = name.ends_with(kEnd);
  if (fault.is_at_end) name.remove_suffix(kEnd.size());
  const std::optional<Stage> stage = FindStage(name);
  if (at == std::string_view::npos || !stage) return malformed(text.substr(0, at));
  fault.stage = *stage;
  std::string_view rest = text.substr(at + 1);
  const size_t colon = rest.find(':');
  int64_t rank = 0;
  if (colon == std::string_view::npos || !ParseNumber(rest.substr(0, colon), rank))
    return malformed(rest);
  if (rank >= world_size) {
    return Fail(ErrorCode::kUsage, fmt::format("'{}' names rank {}", text, rank), "COTUNE_FAULT",
                fmt::format("the job has the ranks 0 to {}", world_size - 1),
                "name one of them, or start more ranks");
  }
  fault.rank = static_cast<int>(rank);
  rest.remove_prefix(colon + 1);
  const size_t second = rest.find(':');
  if (!ParseAction(rest.substr(0, second), fault)) return malformed(rest);
  if (second != std::string_view::npos) {
    int64_t nth = 0;
    if (!ParseNumber(rest.substr(second + 1), nth) || nth == 0) return malformed(rest);
    fault.nth = static_cast<int32_t>(nth);
  }
  return fault;
}

std::unique_ptr<StageObserver> MakeFaultListener(const Fault& fault, int rank) {
  return std::make_unique<FaultListener>(fault, rank);
}

}  // namespace cotune
