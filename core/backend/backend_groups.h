// The groups of all backends over one set of ranks, made and made anew in lockstep.
#ifndef COTUNE_CORE_BACKEND_BACKEND_GROUPS_H_
#define COTUNE_CORE_BACKEND_BACKEND_GROUPS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/temporaries.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// One backend that every rank has, with its group. `generation` counts how often the group was made
// anew.
struct BackendMember {
  Backend* backend = nullptr;
  std::unique_ptr<BackendGroup> group;
  int32_t generation = 0;
  // About how much device memory of this rank the group took when it was made; nullopt: not known.
  std::optional<uint64_t> group_bytes{};
  // How its ranks reach each other, as ConnectionsText says it; equal on all ranks.
  std::string connections{};
};

// Every method that talks to other ranks is collective: all ranks call it in the same order. Not
// thread-safe, except AbortAll.
class BackendGroups {
 public:
  struct Options {
    std::string name;                   // unique in the job
    std::vector<int32_t> job_ranks;     // rank in the job of every rank of the exchange
    std::vector<int32_t> host_of_rank;  // as in Places; empty: all are on one host
    int32_t device = -1;
    int64_t deadline_ns = 0;  // absolute, on the clock of Create and for it
    // The user's settings of each backend, by its name: "key=value key=value". Ranks with different
    // settings of a backend do not share a group of it.
    std::map<std::string, std::string> settings;
    // The ids that tell builds of one version of a backend apart, by its name; backends without are
    // known by their version. Ranks with different builds do not share a group: their lists,
    // kernels or protocols may differ.
    std::map<std::string, std::string> builds;
    // Asked before and behind the making of each group; none: what groups take is not measured.
    std::function<std::optional<uint64_t>()> free_device_bytes{};
    // Backends that the user has left out of the race, in order: they may run parts of programs
    // where none of the others can.
    std::vector<Backend*> part_backends{};
    // Ranks with different rules do not share a group: a call that no table knows would run another
    // default choice on each of them.
    NumericsRule numerics = NumericsRule::kAny;
  };

  // Creates the group of each backend, in the given order. A backend that one rank lacks or has in
  // another version, build or with other settings, or whose group fails on any rank, is left out on
  // all ranks and its reason kept. kRankLost when a rank is lost.
  static Result<std::unique_ptr<BackendGroups>> Create(const std::vector<Backend*>& backends,
                                                       RankExchange& exchange, const Clock& clock,
                                                       const Options& options);

  const std::string& name() const { return options_.name; }
  const std::vector<int32_t>& job_ranks() const { return options_.job_ranks; }
  std::vector<BackendMember>& members() { return members_; }
  const std::vector<BackendMember>& members() const { return members_; }
  const std::vector<Refusal>& refusals() const { return refusals_; }
  // About how much device memory of this rank all groups hold; 0 where that is not measured.
  uint64_t GroupBytes() const;
  // The backend that runs parts of programs: the first one that all ranks have alike and that has
  // any, whether or not it has a group here. nullptr: there is none.
  Backend* part_backend() const { return part_backend_; }
  // Which choices are listed. The setter is for all ranks alike, while no plan is kept.
  NumericsRule numerics() const { return options_.numerics; }
  void set_numerics(NumericsRule numerics);
  // What programs need beside the groups; set before any is listed, equal on all ranks but for
  // addresses and the rank, which is that of the exchange.
  const ProgramSupport& program_support() const { return program_support_; }
  void set_program_support(const ProgramSupport& support) {
    program_support_ = support;
    program_support_.rank = exchange_.rank();
  }
  // The member whose backend has this name, or nullptr.
  BackendMember* Find(std::string_view backend_name);

  // Registers memory of this rank with every member that takes some; the same bytes on all ranks.
  // `own`: a failure to have the memory at all, which ends it on every rank. kUnsupported: no
  // backend takes such memory; kUsage: the ranks differ, or it overlaps registered memory. What is
  // no refusal of a backend but a failure (a rank lost, a deadline) ends it, and nothing is
  // registered.
  Status RegisterMemory(const Status& own, void* data, uint64_t bytes, int64_t deadline_ns);
  // Memory that begins at `data`, if it is registered; does not wait for the other ranks. No launch
  // that uses it is on its way.
  void UnregisterMemory(void* data);
  // No later call finds the memory that begins at `data` registered, and a group that is made anew
  // does not register it again. Its backends keep it, for calls that are captured in graphs, until
  // it is unregistered, which a rank does alone. All ranks hide memory at the same place in the
  // order of their calls, or unregister it there.
  void HideMemory(void* data);
  // Whether all of it lies in memory that is registered, with that backend, if one is given; equal
  // on all ranks where they use their memory alike. Not collective.
  bool IsRegistered(const void* data, uint64_t bytes, std::string_view backend = {}) const;
  bool HasRegisteredMemory() const { return !registered_.empty(); }

  // Aborts the member's group and makes a new one on all ranks; all its plans are destroyed before.
  // Memory that its old group had registered is registered again. A member whose group cannot be
  // made anew is left out on all ranks: its group is nullptr afterwards.
  Status Recreate(BackendMember& member, int64_t deadline_ns);

  // Frees every waiter of every group on this rank. Any thread, while the object lives. A backend
  // whose abort takes its time holds up neither the abort of another one nor anything but the
  // caller.
  void AbortAll();

 private:
  BackendGroups(RankExchange& exchange, Options options)
      : exchange_(exchange), options_(std::move(options)) {}
  // The only writers of a member's group: AbortAll on another thread sees a whole group or none.
  void SetGroup(BackendMember& member, std::unique_ptr<BackendGroup> group);
  // Returns when no abort of the group is under way and it is destroyed.
  void DropGroup(BackendMember& member);
  // "host 0.1.0 build 5f0c... slot_bytes=65536": what all ranks must have alike.
  std::string IdentityOf(const Backend& backend) const;
  GroupParameters ParametersOf(const BackendMember& member, int64_t deadline_ns) const;
  Status CreateMemberGroup(BackendMember& member, int64_t deadline_ns);
  // It runs the parts, where it has any and none before it has.
  void ConsiderForParts(Backend& backend);
  // How it went on all ranks: registered on all, or on none with the first failure.
  Result<Status> RegisterWith(BackendMember& member, void* data, uint64_t bytes,
                              int64_t deadline_ns);

  RankExchange& exchange_;
  Options options_;
  std::vector<BackendMember> members_;
  std::vector<Refusal> refusals_;
  Backend* part_backend_ = nullptr;
  ProgramSupport program_support_;

  struct RegisteredRange {
    std::byte* begin = nullptr;
    uint64_t bytes = 0;
    std::vector<std::string> backends;  // that have it
    bool is_hidden = false;
  };
  std::vector<RegisteredRange> registered_;

  std::mutex abort_mutex_;  // between AbortAll and the writers of a member's group
  std::condition_variable aborted_;
  int aborts_under_way_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_BACKEND_GROUPS_H_
