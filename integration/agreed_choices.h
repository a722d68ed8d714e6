// The choices of collectives that all ranks of a group have agreed on.
#ifndef COTUNE_INTEGRATION_AGREED_CHOICES_H_
#define COTUNE_INTEGRATION_AGREED_CHOICES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/problem/choice_id.h"
#include "core/problem/problem.h"

namespace cotune {

// Maps a collective with its count to the choice that runs it, in whatever program it stands. The
// entry of one count never changes, because a captured graph may hold it. The choices of all counts
// have an owner, which may replace them while no captured graph holds one; the caller knows that.
// Every rank adds the same entries in the same order. One thread at a time uses it.
class AgreedChoices {
 public:
  struct Candidate {
    ChoiceId id;
    uint64_t measured_count = 0;  // where the table has it from; 0: that is not known
    bool only_if_listed = false;  // it runs no collective of a count for which it is not listed
    // It is listed with operations around a collective of so many elements, and fits any: so it
    // runs that collective by itself, too, listed or not. 0: it is a choice of the collective.
    uint64_t fused_count = 0;
    bool is_capturable = false;  // these two are those of the choice that is listed
    bool is_reproducible = false;
    bool operator==(const Candidate&) const = default;
  };
  // The choices for a count, in the order in which they are tried: the first one that can run the
  // collective does. None, or none that can: the default.
  using Candidates = std::vector<Candidate>;
  using CandidatesOfCount = std::function<Candidates(uint64_t count)>;

  // Agrees on the choice of one count, unless there is one.
  void Add(const ProblemClass& cls, uint64_t count, Candidates candidates);
  // Agrees on the choices of all counts that have none of their own. It does nothing if another
  // owner did so before, and replaces the choices of the same owner.
  void AddAllCounts(const ProblemClass& cls, uint64_t owner, CandidatesOfCount candidates_of);
  // The outer optional is empty if nothing is agreed. The candidates of a count are computed once
  // until ForgetComputed, because a call of a new size asks for them several times.
  std::optional<Candidates> Find(const ProblemClass& cls, uint64_t count) const;
  // Whenever what the functions of AddAllCounts depend on changes, and on all ranks alike.
  void ForgetComputed();
  bool empty() const { return choices_.empty() && all_counts_.empty(); }

 private:
  std::map<std::pair<ProblemClass, uint64_t>, Candidates> choices_;
  struct AllCounts {
    uint64_t owner;
    CandidatesOfCount candidates_of;
    mutable std::map<uint64_t, Candidates> computed{};
  };
  std::map<ProblemClass, AllCounts> all_counts_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_AGREED_CHOICES_H_
