#include "tests/multi_process/testing/planned_fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "fmt/format.h"
#include "tests/multi_process/testing/step_events.h"

namespace cotune {
namespace {

// The hook and the handler of the signal have no argument of the test's.
struct Plan {
  std::optional<PlannedFault> fault;
  TestLink* link = nullptr;
  bool reports_launches = false;
  int64_t launched = 0;
  int64_t deadline_ns = 0;
  void* page = nullptr;  // that nobody may touch before the fault
};
Plan plan;

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Also in the handler of a signal.
void CarryOut() {
  switch (plan.fault->action) {
    case Action::kKill:
      kill(getpid(), SIGKILL);
      break;
    case Action::kStop:
      kill(getpid(), SIGSTOP);
      break;
    case Action::kAwaitWord:
      plan.link->ReportInHandler("away\n");
      plan.link->AwaitWord();
      break;
    case Action::kAwaitDeadline: {
      const timespec until{plan.deadline_ns / kSecondNs, plan.deadline_ns % kSecondNs};
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
      }
      break;
    }
  }
}

void OnTouch(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const char*>(info->si_addr);
  const auto* page = static_cast<const char*>(plan.page);
  if (page == nullptr || address < page || address >= page + PageBytes()) {
    signal(SIGSEGV, SIG_DFL);  // a fault of the program, which comes again at once
    return;
  }
  mprotect(plan.page, PageBytes(), PROT_READ | PROT_WRITE);
  plan.page = nullptr;
  CarryOut();
}

// The first page that lies wholly in the second half of the operand.
void ProtectMiddle(const StepEvent& event) {
  const auto begin = reinterpret_cast<uintptr_t>(event.operand);
  const uintptr_t middle = begin + event.operand_bytes / 2;
  const uintptr_t page = (middle + PageBytes() - 1) / PageBytes() * PageBytes();
  if (page + PageBytes() > begin + event.operand_bytes) abort();  // a larger operand is needed
  struct sigaction action {};
  action.sa_sigaction = OnTouch;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  plan.page = reinterpret_cast<void*>(page);
  if (mprotect(plan.page, PageBytes(), PROT_NONE) != 0) abort();
}

void OnStep(const StepEvent& event) {
  if (!event.has_ended) {
    ++plan.launched;
    if (plan.reports_launches) plan.link->Report(fmt::format("launched {}", plan.launched));
  }
  if (!plan.fault || plan.launched != plan.fault->step) return;
  if (!event.has_ended) plan.deadline_ns = event.deadline_ns;
  const Moment moment = plan.fault->moment;
  if (moment == Moment::kWithin && !event.has_ended) ProtectMiddle(event);
  // A step that has not touched the page would make the case vacuous.
  if (moment == Moment::kWithin && event.has_ended && plan.page != nullptr) abort();
  const bool is_now = event.has_ended ? moment == Moment::kAfter : moment == Moment::kBefore;
  if (is_now) CarryOut();
}

}  // namespace

void PlanFault(const PlannedFault& fault, TestLink& link) {
  plan.fault = fault;
  plan.link = &link;
}

int64_t LaunchedSteps() { return plan.launched; }

void ReportLaunches(TestLink& link) {
  plan.link = &link;
  plan.reports_launches = true;
}

}  // namespace cotune

// The plugin finds it by name (step_events.h).
extern "C" __attribute__((visibility("default"), used)) void CotuneTestOnStep(
    const cotune::StepEvent& event) {
  cotune::OnStep(event);
}
