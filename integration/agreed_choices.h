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
    // Not 0: the table has this choice with operations around a collective of so many elements, and
    // it fits any region. It then runs that collective by itself, even if its backend does not list
    // it there, and has the two flags of the fused choice.
    uint64_t fused_count = 0;
    bool is_capturable = false;
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
  // The outer optional is empty if nothing is agreed. The candidates of a count are kept, for
  // 4096 counts at most, because a call of a new size asks for them several times.
  std::optional<Candidates> Find(const ProblemClass& cls, uint64_t count) const;
  // Drops the candidates that are kept. The owner calls it if the table or the lists of choices
  // change, on all ranks at the same call.
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
