// The identity of a choice: stable text, the same on every rank, parsed back without loss.
#ifndef COTUNE_CORE_PROBLEM_CHOICE_ID_H_
#define COTUNE_CORE_PROBLEM_CHOICE_ID_H_

#include <array>
#include <compare>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace cotune {

// The host's keys of a step: `fuse` lists the operations that run
// inside of the collective, and `via` is the form of the program (core/recipe). No backend's choice
// has them, and no backend sees them.
inline constexpr std::array<std::string_view, 2> kHostKeys{"fuse", "via"};

// Grammar: step { "+" step }, and step: backend "/" algorithm [ "?" key "=" value { "&" key "="
// value } ], for example "host/ring?chunk=65536". backend: [a-z][a-z0-9_]{0,30}; the other parts:
// [a-z0-9_.-]+; keys are unique in a step and keep their order; those of the host come last. The id
// of a program has one step for each backend step of its recipe, or a single one that runs them
// all.
class ChoiceId {
 public:
  static Result<ChoiceId> Parse(std::string_view text);
  // From a backend's name and the ABI's choice name. kUsage also if the name has a key of the host.
  static Result<ChoiceId> FromBackend(std::string_view backend, std::string_view choice_name);

  // The choice of a program whose collectives run by `steps`, of which there is at least one: just
  // the one where all are equal.
  static ChoiceId Join(std::span<const ChoiceId> steps);

  const std::string& text() const { return text_; }
  bool has_steps() const { return text_.find('+') != std::string::npos; }
  // The choice of each step; the id itself where it is just one.
  std::vector<ChoiceId> steps() const;
  // The choices of `count` backend steps: one for each, or the one for all. Empty when the id has
  // another number of steps.
  std::vector<ChoiceId> StepsFor(size_t count) const;
  // The value of a key of the host in the first step; "" if it has none.
  std::string HostKey(std::string_view key) const;
  // The same with a key of the host in each step, which has none.
  ChoiceId WithHostKey(std::string_view key, std::string_view value) const;
  // The same without this key of the host in its steps.
  ChoiceId WithoutHostKey(std::string_view key) const;
  bool has_host_keys() const;
  // The choices of the steps as their backends know them.
  ChoiceId WithoutHostKeys() const;
  // What follows is that of the first step.
  std::string_view backend() const { return std::string_view(text_).substr(0, slash_); }
  // The backend's own name for the choice: everything after the slash.
  std::string_view choice_name() const;
  std::string_view algorithm() const;
  std::vector<std::pair<std::string, std::string>> parameters() const;

  bool operator==(const ChoiceId& other) const { return text_ == other.text_; }
  std::strong_ordering operator<=>(const ChoiceId& other) const { return text_ <=> other.text_; }

 private:
  static Result<ChoiceId> ParseStep(std::string_view text);
  ChoiceId Without(std::span<const std::string_view> keys) const;
  ChoiceId(std::string text, size_t slash) : text_(std::move(text)), slash_(slash) {}
  std::string text_;
  size_t slash_;
};

// A way that exists but cannot run this program, with the reason, kept to the end for explain.
struct Refusal {
  std::string choice;  // id text, or just the backend's name when all of it refuses
  std::string reason;
};

}  // namespace cotune

template <>
struct std::hash<cotune::ChoiceId> {
  size_t operator()(const cotune::ChoiceId& id) const {
    return std::hash<std::string>()(id.text());
  }
};

#endif  // COTUNE_CORE_PROBLEM_CHOICE_ID_H_
