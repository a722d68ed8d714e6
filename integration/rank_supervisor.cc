#include "integration/rank_supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/counted.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

constexpr int kRankLostExitCode = 5;
constexpr int kInterruptedExitCode = 130;
constexpr int kReadsAtTheEndMax = 64;          // of so many bytes: more than a pipe holds
constexpr int64_t kLastWordsNs = 500'000'000;  // for ranks that have met one that is lost
constexpr size_t kReadBytes = 16 * 1024;
constexpr size_t kRanksNamedMax = 8;

}  // namespace

RankSupervisor::RankSupervisor(const SpawnRequest& request, std::vector<RankProcess>& ranks,
                               SignalPipe& signals, const Clock& clock)
    : request_(request),
      ranks_(ranks),
      signals_(signals),
      clock_(clock),
      started_ns_(clock.now_ns()),
      errors_(request, clock) {
  sigemptyset(&passed_on_);
}

void RankSupervisor::Run() {
  while (AnyRunning()) {
    Wait();
    HandleSignals();
    ReadOutputs();
    Reap();
    if (errors_.due_ns() != 0 && clock_.now_ns() >= errors_.due_ns()) errors_.Tell();
    HandleLoss();
    EndRanksThatWaitInVain();
    NoticeStoppedRanks();
    if (grace_end_ns_ != 0 && clock_.now_ns() >= grace_end_ns_) KillAll();
  }
  CollectAll();
  for (RankProcess& rank : ranks_) {
    int reads = 0;
    while (rank.output_fd >= 0 && reads < kReadsAtTheEndMax && ReadOutput(rank)) ++reads;
    CloseOutput(rank);
    errors_.ReadToTheEnd(rank);
    if (rank.error_fd >= 0) close(std::exchange(rank.error_fd, -1));
  }
  log_.FlushAtTheEnd();
  errors_.Tell();
}

SpawnResult RankSupervisor::TakeResult() {
  for (const RankProcess& rank : ranks_) TakeExit(rank);
  result_.rank_0_told_error = ranks_.front().has_told_error;
  return std::move(result_);
}

bool RankSupervisor::AnyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& rank) { return rank.running; });
}

bool RankSupervisor::NoneStopped() const {
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const RankProcess& rank) { return rank.running && rank.stopped; });
}

// ---- Waiting ----

void RankSupervisor::Wait() {
  std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
  // A rank that prints faster than standard error takes it has to wait, and nobody else does.
  if (!log_.is_empty()) waited.push_back({STDERR_FILENO, POLLOUT, 0});
  for (const RankProcess& rank : ranks_) {
    if (rank.output_fd >= 0 && log_.is_empty()) waited.push_back({rank.output_fd, POLLIN, 0});
    if (rank.error_fd >= 0) waited.push_back({rank.error_fd, POLLIN, 0});
  }
  poll(waited.data(), waited.size(), TimeoutMs());
}

int RankSupervisor::TimeoutMs() const {
  int timeout_ms = -1;
  for (const int64_t due_ns :
       {grace_end_ns_, errors_.due_ns(), unjoined_end_ns_, stopped_notice_ns_}) {
    if (due_ns == 0) continue;
    const auto left_ms = static_cast<int>(
        std::clamp<int64_t>((due_ns - clock_.now_ns()) / 1'000'000 + 1, 0, INT_MAX));
    timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
  }
  return timeout_ms;
}

void RankSupervisor::HandleSignals() {
  while (const std::optional<int> number = signals_.Read()) OnSignal(*number);
}

void RankSupervisor::OnSignal(int number) {
  if (number == SIGCHLD) return;
  if (number == SIGTSTP) return Suspend();
  if (!interrupted_) was_failing_ = failed_;
  interrupted_ = true;
  sigaddset(&passed_on_, number);
  SendAll(number);
  SendAll(SIGCONT);  // a rank that is stopped hears nothing
  BeginGrace();
}

void RankSupervisor::Suspend() {
  const bool was_lent = terminal_.is_lent();
  const bool must_end = IsJobOver() && grace_end_ns_ != 0;
  terminal_.TakeBack();
  SendAll(SIGTSTP);
  kill(getpid(), SIGSTOP);
  // Here it goes on, in the foreground or in the background.
  for (RankProcess& rank : ranks_) rank.stopped = false;
  grace_end_ns_ = 0;
  stopped_notice_ns_ = 0;
  if (must_end) BeginGrace();
  // First this: SIGCONT would discard a stop that the terminal sends to who has it.
  SendAll(SIGCONT);
  if (was_lent) terminal_.LendTo(ranks_.front().pid);
}

// ---- Output ----

void RankSupervisor::ReadOutputs() {
  log_.Flush();
  // One piece each, in turns: nobody keeps the others, signals and the time waiting.
  const size_t first = next_to_read_;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const size_t at = (first + i) % ranks_.size();
    RankProcess& rank = ranks_[at];
    if (rank.error_fd >= 0) errors_.Read(rank);
    if (rank.output_fd < 0 || !log_.is_empty()) continue;
    ReadOutput(rank);
    next_to_read_ = at + 1;
    log_.Flush();
  }
}

bool RankSupervisor::ReadOutput(RankProcess& rank) {
  std::array<char, kReadBytes> buffer;
  const ssize_t size = read(rank.output_fd, buffer.data(), buffer.size());
  if (size > 0) {
    rank.lines.Append(std::string_view(buffer.data(), static_cast<size_t>(size)),
                      [&](std::string_view line) { log_.Add(rank.rank, line); });
    return true;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  CloseOutput(rank);
  return false;
}

void RankSupervisor::CloseOutput(RankProcess& rank) {
  if (rank.output_fd < 0) return;
  rank.lines.Finish([&](std::string_view line) { log_.Add(rank.rank, line); });
  close(std::exchange(rank.output_fd, -1));
}

// ---- Changes of ranks ----

void RankSupervisor::Reap() {
  for (RankProcess& rank : ranks_) {
    while (rank.running) {
      siginfo_t change{};
      constexpr int kAny = WEXITED | WSTOPPED | WCONTINUED;
      if (waitid(P_PID, static_cast<id_t>(rank.pid), &change, kAny | WNOHANG | WNOWAIT) != 0 ||
          change.si_pid == 0) {
        break;
      }
      const bool has_stopped = change.si_code == CLD_STOPPED || change.si_code == CLD_TRAPPED;
      if (has_stopped || change.si_code == CLD_CONTINUED) {
        siginfo_t taken{};
        waitid(P_PID, static_cast<id_t>(rank.pid), &taken,
               (has_stopped ? WSTOPPED : WCONTINUED) | WNOHANG);
        if (taken.si_pid == 0) continue;  // it has changed again
        if (has_stopped) {
          OnStopped(rank, taken.si_status);
        } else {
          OnContinued(rank);
        }
        continue;
      }
      rank.running = false;
      const bool by_signal = change.si_code != CLD_EXITED;
      (by_signal ? rank.end_signal : rank.exit_code) = change.si_status;
      OnEnded(rank);
    }
  }
}

void RankSupervisor::OnStopped(RankProcess& rank, int signal_number) {
  const bool is_first = rank.pid == ranks_.front().pid;
  if (is_first && (signal_number == SIGTTIN || signal_number == SIGTTOU)) {
    // It wants the terminal. Without it, this job is in the background and waits like any other.
    if (!terminal_.LendTo(rank.pid)) return Suspend();
    kill(-rank.pid, SIGCONT);
    return;
  }
  if (is_first && signal_number == SIGTSTP && terminal_.is_lent()) return Suspend();
  const bool is_first_stopped = NoneStopped();
  rank.stopped = true;
  if (!request_.loses_stopped_ranks) return;
  BeginGrace();
  if (is_first_stopped) stopped_notice_ns_ = clock_.now_ns() + request_.stopped_notice_ns;
}

void RankSupervisor::NoticeStoppedRanks() {
  if (stopped_notice_ns_ == 0 || clock_.now_ns() < stopped_notice_ns_) return;
  stopped_notice_ns_ = 0;
  std::vector<int> stopped;
  for (const RankProcess& rank : ranks_) {
    if (rank.running && rank.stopped) stopped.push_back(rank.rank);
  }
  const int64_t left_ns = grace_end_ns_ - clock_.now_ns();
  if (stopped.empty() || grace_end_ns_ == 0 || left_ns <= 0) return;
  const bool is_one = stopped.size() == 1;
  log_.AddOwn(
      fmt::format("waiting for rank{} {}, which {} stopped (SIGSTOP, a debugger), for at "
                  "most {:.0f} s more; `kill -CONT` lets {} go on",
                  is_one ? "" : "s", NumbersText(stopped), is_one ? "is" : "are",
                  static_cast<double>(left_ns) * 1e-9, is_one ? "it" : "them"));
  log_.Flush();
}

void RankSupervisor::OnContinued(RankProcess& rank) {
  rank.stopped = false;
  if (NoneStopped()) stopped_notice_ns_ = 0;
  // All of the job was stopped and goes on, as a shell does it.
  if (!IsJobOver() && NoneStopped()) grace_end_ns_ = 0;
}

void RankSupervisor::OnEnded(RankProcess& rank) {
  if (rank.pid == ranks_.front().pid && terminal_.is_lent()) {
    terminal_.TakeBack();
    // The terminal's interrupt has reached nobody else.
    if (rank.end_signal == SIGINT || rank.end_signal == SIGQUIT) OnSignal(rank.end_signal);
  }
  if (request_.reports_milestones) errors_.ReadToTheEnd(rank);
  if (HasEndedWell(rank)) return;
  failed_ = true;
  rank.failed_itself = !ends_others_ && !rank.was_killed;
  BeginGrace();
}

void RankSupervisor::HandleLoss() {
  if (!failed_ || interrupted_ || loss_is_told_) return;
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [](const RankProcess& rank) { return rank.failed_itself; });
  if (found == ranks_.end()) return;  // this process has ended them: their messages say why
  RankProcess& first = *found;
  errors_.ReadToTheEnd(first);
  // A program that cannot be started fails on the others alike: they are heard before they are
  // ended.
  if (first.has_told_error && errors_.due_ns() != 0) return;
  loss_is_told_ = true;
  // A program that could not be started has said so.
  if (request_.on_loss && !first.has_told_error) {
    told_rank_ = first.rank;
    const double seconds = static_cast<double>(clock_.now_ns() - started_ns_) * 1e-9;
    request_.on_loss(first.rank, first.end_signal != 0,
                     Describe(first, fmt::format("{} after {:.1f} s{}", EndText(first), seconds,
                                                 GoodEndsText())));
  }
  if (!request_.ends_others) return;
  ends_others_ = true;
  SendAll(SIGTERM);
  SendAll(SIGCONT);  // a rank that is stopped hears nothing
}

// Ranks that have met the lost one hear of its end by themselves and get the time to say so. Others
// would wait for it until the deadline of their rendezvous.
void RankSupervisor::EndRanksThatWaitInVain() {
  if (!failed_ || interrupted_ || !request_.reports_milestones || result_.was_lost_before_join) {
    return;
  }
  // A rank that ends by itself gives the reason, or another rank is about to.
  const bool is_lost = std::any_of(ranks_.begin(), ranks_.end(), [this](const RankProcess& rank) {
    return rank.failed_itself && (rank.end_signal != 0 || HasLeftInTheMiddle(rank));
  });
  const bool has_joined = std::any_of(ranks_.begin(), ranks_.end(),
                                      [](const RankProcess& rank) { return rank.has_joined; });
  if (!is_lost || has_joined) {
    unjoined_end_ns_ = 0;
    return;
  }
  if (unjoined_end_ns_ == 0) unjoined_end_ns_ = clock_.now_ns() + kLastWordsNs;
  if (clock_.now_ns() < unjoined_end_ns_) return;
  result_.was_lost_before_join = true;
  unjoined_end_ns_ = 0;
  for (RankProcess& rank : ranks_) {
    if (!rank.running) continue;
    rank.was_killed = true;
    kill(-rank.pid, SIGKILL);
  }
}

// ---- Ending them ----

void RankSupervisor::BeginGrace() {
  if (grace_end_ns_ == 0) grace_end_ns_ = clock_.now_ns() + request_.grace_ns;
}

void RankSupervisor::SendAll(int signal_number) const {
  for (const RankProcess& rank : ranks_) {
    if (rank.running) kill(-rank.pid, signal_number);
  }
}

void RankSupervisor::KillAll() {
  for (RankProcess& rank : ranks_) {
    if (!rank.running) continue;
    AddMessage(rank,
               rank.stopped ? "was stopped and was killed" : "did not end in time and was killed");
    // The code of the rank that failed says more. A rank that is deaf to the user's signal is
    // mentioned, and the job ends as the user has asked.
    const bool is_by_user = interrupted_ && !was_failing_;
    if (!ends_others_) result_.exit_code = is_by_user ? kInterruptedExitCode : kRankLostExitCode;
    rank.was_killed = true;
    kill(-rank.pid, SIGKILL);
  }
  // Nothing is left to wait for but their ends.
  grace_end_ns_ = INT64_MAX;
}

void RankSupervisor::CollectAll() {
  for (const RankProcess& rank : ranks_) {
    // Processes that the rank has left behind. After a job that went well they may live on.
    if (IsJobOver()) kill(-rank.pid, SIGKILL);
    waitpid(rank.pid, nullptr, 0);
  }
}

// ---- The result ----

void RankSupervisor::TakeExit(const RankProcess& rank) {
  if (HasEndedWell(rank)) return;
  if (rank.end_signal != 0 && sigismember(&passed_on_, rank.end_signal) == 1) {
    // A program that does not catch the signal ends as the user wanted it.
    if (result_.exit_code == 0) result_.exit_code = kInterruptedExitCode;
    return;
  }
  if (IsMentioned(rank) || !rank.failed_itself) return;
  if (rank.end_signal == 0 && !HasLeftInTheMiddle(rank)) {
    if (result_.exit_code == 0) result_.exit_code = rank.exit_code;
    return;
  }
  if (rank.rank != told_rank_) {
    AddMessage(
        rank, EndText(rank) + (result_.was_lost_before_join ? " before the ranks had joined" : ""));
  }
  result_.exit_code = kRankLostExitCode;
}

bool RankSupervisor::HasEndedWell(const RankProcess& rank) const {
  if (rank.end_signal != 0 || rank.exit_code != 0) return false;
  return !request_.reports_milestones || rank.has_said_done;
}

bool RankSupervisor::HasLeftInTheMiddle(const RankProcess& rank) const {
  if (rank.end_signal != 0 || !request_.reports_milestones) return false;
  return !rank.has_said_done && (rank.exit_code == 0 || !rank.has_told_error);
}

bool RankSupervisor::IsMentioned(const RankProcess& rank) const {
  return std::find(result_.lost_ranks.begin(), result_.lost_ranks.end(), rank.rank) !=
         result_.lost_ranks.end();
}

// "was ended by SIGKILL (Killed)"; signals without a name by their number.
std::string RankSupervisor::EndText(const RankProcess& rank) const {
  if (HasLeftInTheMiddle(rank)) {
    return fmt::format(
        "ended with exit code {} before it was done: a plugin may have called exit()",
        rank.exit_code);
  }
  if (rank.end_signal == 0) return fmt::format("ended with exit code {}", rank.exit_code);
  const char* const name = sigabbrev_np(rank.end_signal);
  return name == nullptr
             ? fmt::format("was ended by signal {}", rank.end_signal)
             : fmt::format("was ended by SIG{} ({})", name, sigdescr_np(rank.end_signal));
}

std::string RankSupervisor::GoodEndsText() const {
  std::vector<int> ended;
  for (const RankProcess& rank : ranks_) {
    if (!rank.running && HasEndedWell(rank)) ended.push_back(rank.rank);
  }
  if (ended.empty()) return "";
  const size_t unnamed = ended.size() - std::min(ended.size(), kRanksNamedMax);
  const bool is_one = ended.size() == 1;
  ended.resize(ended.size() - unnamed);
  return fmt::format("; {} {}{} ended with exit code 0", is_one ? "rank" : "ranks",
                     fmt::join(ended, ", "),
                     is_one         ? " has"
                     : unnamed == 0 ? " have"
                                    : fmt::format(" and {} more have", unnamed));
}

std::string RankSupervisor::Describe(const RankProcess& rank, const std::string& what) const {
  return fmt::format("rank {} (pid {}, {}) {}", rank.rank, rank.pid, request_.command.front(),
                     what);
}

void RankSupervisor::AddMessage(const RankProcess& rank, const std::string& what) {
  result_.messages.push_back(Describe(rank, what));
  auto& lost = result_.lost_ranks;
  lost.insert(std::upper_bound(lost.begin(), lost.end(), rank.rank), rank.rank);
}

}  // namespace cotune
