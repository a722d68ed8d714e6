// Holds a group to the thread tags of the plugin ABI.
#ifndef COTUNE_PLUGINS_LOADER_THREAD_RULE_CHECK_H_
#define COTUNE_PLUGINS_LOADER_THREAD_RULE_CHECK_H_

#include <mutex>
#include <string>

namespace cotune {

// Calls tagged [group] and [hot] come one at a time for a group; only prepare may overlap with
// itself. A call that breaks the rule ends the process with a text that names both calls: it is a
// mistake of cotune, which a backend would answer with a crash or wrong values. Any thread.
class ThreadRuleCheck {
 public:
  // `whose`: backend and group, for the text. A guard that is off lets everything pass.
  ThreadRuleCheck(bool is_on, std::string whose);
  ThreadRuleCheck(const ThreadRuleCheck&) = delete;
  ThreadRuleCheck& operator=(const ThreadRuleCheck&) = delete;

  // One call, from construction to destruction. `call` is a literal.
  class Scope {
   public:
    Scope(ThreadRuleCheck& guard, const char* call) : guard_(guard) {
      if (guard_.is_on_) guard_.Enter(call);
    }
    ~Scope() {
      if (guard_.is_on_) guard_.Leave();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ThreadRuleCheck& guard_;
  };

 private:
  void Enter(const char* call);
  void Leave();

  const bool is_on_;
  const std::string whose_;
  std::mutex mutex_;
  int running_ = 0;                // calls inside the backend
  const char* running_call_ = "";  // what they are
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_THREAD_RULE_CHECK_H_
