#include "plugins/loader/thread_rule_check.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace cotune {

ThreadRuleCheck::ThreadRuleCheck(bool is_on, std::string whose)
    : is_on_(is_on), whose_(std::move(whose)) {}

void ThreadRuleCheck::Enter(const char* call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  constexpr std::string_view kSharedCall = "prepare";
  const bool may_overlap = call == kSharedCall && running_call_ == kSharedCall;
  if (running_ > 0 && !may_overlap) {
    std::fprintf(stderr,
                 "cotune: thread rule broken: %s was called while %s was running on %s; "
                 "[group] and [hot] calls of a group come one at a time\n",
                 call, running_call_, whose_.c_str());
    std::abort();
  }
  ++running_;
  running_call_ = call;
}

void ThreadRuleCheck::Leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --running_;
}

}  // namespace cotune
