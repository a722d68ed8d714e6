// The ranks of a group exchange words: each puts one into the job's store and reads those of all,
// and a rank that failed says why instead.
#ifndef COTUNE_PLUGINS_SDK_RENDEZVOUS_H_
#define COTUNE_PLUGINS_SDK_RENDEZVOUS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/failure.h"

namespace cotune::sdk {

// A word is a struct of plain bytes: the ranks run the same plugin on machines of one kind.
//
// A failure that a rank reads from another one has that one's name in its text. Its failed_rank is
// the rank that the other one blames, and the other one itself where it blames none.
//
// One thread at a time; GiveUp and WhoGaveUp from any.
class Rendezvous {
 public:
  // The services of `host` outlive this object. `backend` is the name in the backend's table: all
  // keys begin with the names of the group and the backend.
  Rendezvous(const cotune_host_t& host, const cotune_group_params_t& params, std::string backend);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const std::string& group_name() const { return group_name_; }
  // "job rank 7 (rank 3 of the group)".
  std::string NameOf(int rank) const;

  // Collective; `phase` is new in this group. Gives the words of all ranks, by rank. When one has
  // failed all fail. COTUNE_PEER_FAILED names the rank that did not come by the deadline.
  template <class Word>
  Result<std::vector<Word>> Exchange(const std::string& phase, const Result<Word>& own,
                                     int64_t deadline_ns) const {
    const auto put = Put(phase, own);
    COTUNE_RETURN_IF_ERROR(own);
    COTUNE_RETURN_IF_ERROR(put);
    std::vector<Word> words;
    for (int peer = 0; peer < world_size_; ++peer) {
      COTUNE_TRY(auto word, Get<Word>(phase, peer, deadline_ns));
      words.push_back(word);
    }
    return words;
  }
  // The same with texts, which may have other lengths on each rank; at most kTextBytesMax.
  Result<std::vector<std::string>> ExchangeTexts(const std::string& phase,
                                                 const Result<std::string>& own,
                                                 int64_t deadline_ns) const;
  static constexpr size_t kTextBytesMax = 32768;
  // Every rank calls it when it reads these phases no more, also after a failure. Deletes them when
  // all ranks have; a failure (a rank did not call it by the deadline) leaves them in the store,
  // where a rank that comes late can still read why the others failed.
  Result<void> Part(const std::vector<std::string>& phases, int64_t deadline_ns) const;
  // Exchange and, when it has succeeded, Part.
  template <class Word>
  Result<std::vector<Word>> Meet(const std::string& phase, const Result<Word>& own,
                                 int64_t deadline_ns) const {
    auto words = Exchange(phase, own, deadline_ns);
    if (!words) return words;
    COTUNE_RETURN_IF_ERROR(Part({phase}, deadline_ns));
    return words;
  }

  // The halves of Exchange, for phases in which not every rank has something to say.
  template <class Word>
  Result<void> Put(const std::string& phase, const Result<Word>& own) const {
    static_assert(std::is_trivially_copyable_v<Word>);
    return PutBytes(KeyOf(phase, rank_), own ? nullptr : &own.error(), own ? &*own : nullptr,
                    sizeof(Word));
  }
  template <class Word>
  Result<Word> Get(const std::string& phase, int rank, int64_t deadline_ns) const {
    static_assert(std::is_trivially_copyable_v<Word>);
    Word word{};
    COTUNE_RETURN_IF_ERROR(GetBytes(phase, rank, deadline_ns, &word, sizeof(Word)));
    return word;
  }
  // Deletes what this rank has put.
  void Delete(const std::string& phase) const;

  // For ranks that wait for each other elsewhere than in the store, as in shared memory: the place
  // where any of them says why it will not come, and where the others look meanwhile. Does not
  // wait; the latest one counts.
  void GiveUp(const Failure& failure) const;
  std::optional<Failure> WhoGaveUp() const;

 private:
  // The header of a word in the store.
  struct Header;

  std::string KeyOf(const std::string& phase, int rank) const;
  std::string GivenUpKey() const;
  // A word, or the failure that stands in its place.
  Result<void> PutBytes(const std::string& key, const Failure* failure, const void* word,
                        size_t size) const;
  Result<void> GetBytes(const std::string& phase, int rank, int64_t deadline_ns, void* word,
                        size_t size) const;
  // A word of any length up to `capacity`.
  Result<std::string> GetText(const std::string& phase, int rank, int64_t deadline_ns,
                              size_t capacity) const;
  Failure FailureOf(const Header& header, int speaker) const;
  tl::unexpected<Failure> Unreadable(int rank, cotune_status_t got, uint64_t bytes) const;

  const cotune_host_t& host_;
  const std::string backend_;
  const std::string group_name_;
  const int rank_;
  const int world_size_;
  const std::vector<int32_t> job_ranks_;
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_RENDEZVOUS_H_
