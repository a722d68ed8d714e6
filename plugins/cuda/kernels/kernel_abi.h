// The definitions that host code and kernels share: arguments, failure record, layout of the arena.
// Included by C++, by NVRTC and by the runner on the CPU; includes nothing.
#ifndef COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_ABI_H_
#define COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_ABI_H_

namespace cotune::cuda {

constexpr int kRanksMax = 8;

enum FailureKind : int {
  kNoFailure = 0,
  kTimeout = 1,
  kAborted = 2,
  kProtocol = 3,
  kMismatch = 4,  // the ranks make different calls
};

// A call as ranks compare it, see "Calls are compared". The words of the number are zero in
// KernelArguments, because a captured launch runs again as another call.
//   word[0]          number of the launch, counted by the group from 0
//   word[1]          digest of the problem, of the choice's name, and of the program that the
//                    call is a step of
//   word[2] & 0xFF   the number again, its lowest bits
//   word[2], word[3] the problem, as call_record.h packs it
struct CallRecord {
  unsigned int word[4];
};

// The first failure of this rank's kernels, in host memory that the device maps. All zero: none.
struct FailureRecord {
  unsigned int is_set;  // 1 once the fields below are written
  unsigned int poison;  // who gave up first, this rank or a peer, and why: see MakePoison
  unsigned int number;  // of this rank's launch, counted from 1
  unsigned int step;
  unsigned int block;
  // When ranks make different calls: this rank's call, and that of a rank that makes another one,
  // or this rank's again where it has not heard of the other one.
  int other;
  CallRecord own_call;
  CallRecord other_call;
};

// Written by the host to end every wait; in host memory that the device maps. One thread of a rank
// reads it in a tick.
struct AbortWord {
  unsigned int value;  // 0: go on
};

// Kernels count time in ticks of 16 us, so that it needs one register; the longest wait is 19
// hours.
constexpr int kTickBits = 14;
constexpr unsigned int TicksOf(unsigned long long ns) {
  constexpr unsigned long long kTicksMax = ~0u - 1;
  const unsigned long long ticks = (ns >> kTickBits) + 1;
  return static_cast<unsigned int>(ticks < kTicksMax ? ticks : kTicksMax);
}

// The first parameter of every kernel. Only fused kernels have a second one, of part_abi.h.
struct KernelArguments {
  const void* send;
  void* recv;
  unsigned long long count;         // elements, as in the ABI's table
  unsigned char* arena[kRanksMax];  // of each rank, as mapped in this process
  FailureRecord* failure;
  const AbortWord* abort;
  unsigned int timeout_ticks;  // from when a thread has begun to wait, see TicksOf
  int rank;
  int world_size;
  int root;
  int chunk_bytes;  // of "flagged" and "queued": the most of the data that a block sends at once
  // For "copy_engine". -1: ranks only wait for each other. Else all_reduce adds up this segment,
  // and the other collectives copy send to recv.
  int segment;
  CallRecord call;  // the same on all ranks, or the launch fails
  // For "zero_copy": each rank's buffers of this call, as mapped in this process. Send buffers
  // where data is added up; receive buffers elsewhere, and with all_reduce.
  unsigned char* peer_send[kRanksMax];
  unsigned char* peer_recv[kRanksMax];
};

// ---- The arena: device memory of each rank, mapped by all ----
//
// Scratch is cut into kStepBuffers parts, used in turn by steps. A step is one exchange of every
// thread with the thread of the same index on every peer; a launch takes some consecutive steps.
// Readers put scratch back into its first state, all ones, as they read, so that data itself says
// when it is there. Before a rank writes into the scratch of step s, every peer must
// have done with step s - kStepBuffers:
//  - Within a launch all steps but the last are full. A thread that is done with step s - 1 has
//    heard, directly or through a peer, from that thread of every rank in step s - 1, which had
//    then done with step s - 2.
//  - At the end of a launch every rank has heard from every other in that launch, so every launch
//    before it is done everywhere.
// Only steps s - 1 and s - 2 of one launch can so be unfinished on a peer: three parts are enough,
// whatever the grids and the kernels of the launches. Done with a step means that the slots are
// seen empty, see Receive.

constexpr unsigned int kStepBuffers = 3;
// Steps are counted up to a multiple of kStepBuffers and then from 0 again.
constexpr unsigned int kStepsEnd = kStepBuffers << 29;

struct alignas(16) ArenaControl {
  unsigned int step;            // of the next launch; the same on all ranks
  unsigned int poison;          // 0: the group works, else why it does not, see MakePoison
  unsigned int launches;        // launches that block 0 has counted; the same on all ranks
  unsigned int arrived_blocks;  // of the launch that runs
  unsigned int is_told;         // 1: a thread of this rank tells its host of the failure, or has
  unsigned int looked_tick;     // when this rank last read its AbortWord, see TicksOf
  unsigned int is_aborted;      // 1: the AbortWord was found set
};

// A kernel that gives up poisons the group: in the arena of every rank it leaves a word that says
// why. Every later launch of any rank reads it first and leaves without sending anything, and a
// launch that waits looks at it, so that calls that are queued or captured end at once. Nothing
// takes the word back: the group is over.
//
// Why no call succeeds with wrong data after that: a rank that gave up in launch n sends nothing
// afterwards, so what its peers find in scratch is of launches up to n, and right. What it has not
// sent, they wait for until they see the word: a thread that sends its data as its own flag leaves
// alone, and the threads of a block that share a flag leave together. Callers' buffers that a peer
// reads may be reused once the rank's failure is known to its host, and the word has reached all
// peers before that: a launch that reads them looks at the word once more after it has read.
constexpr unsigned int MakePoison(int kind, int reporter, int peer) {
  return 0x80000000u | static_cast<unsigned int>(kind) << 8 |
         static_cast<unsigned int>(reporter) << 4 | static_cast<unsigned int>(peer);
}
constexpr int PoisonKind(unsigned int poison) { return static_cast<int>(poison >> 8 & 0xFu); }
constexpr int PoisonReporter(unsigned int poison) { return static_cast<int>(poison >> 4 & 0xFu); }
constexpr int PoisonPeer(unsigned int poison) { return static_cast<int>(poison & 0xFu); }

// Calls are compared: block 0 of each launch writes the record of its call into the arena of every
// peer and, before it ends, has seen that of every peer. It looks while it waits for data, too,
// since data of another call may never come.
// Ranks compare the first half: the number and a digest of all else.
//  - Equal halves: the ranks make the same call.
//  - Same number, other digest: they do not. Both ranks fail and poison the group.
//  - The peer's number is ahead: the peer has ended this launch, so it had seen this rank's record
//    and found it equal to its own, or it would have poisoned the group and begun no other launch.
//  - It is behind: the peer has not come yet.
// Each half of a record (eight bytes) arrives whole. The second one says in words for errors what
// the digest stands for; bits of the number in it tell whether it belongs to the first.

// Kernels whose data does not say itself when it is there ("flagged") have scratch of their own,
// with flags that count. Blocks of the same index on all ranks work together and need no others:
// each index has its count of rounds, its flags (one for each source) and its slots, whatever the
// grid. In round i a block
//  1. sends data into slot "in" i of its peers,
//  2. waits until the flag of every peer says that its round i - 1 is over,
//  3. reads what it got in round i - 1, sends results into slot "out" i of its peers,
//     and reads the results of round i - 1,
//  4. is done with the round: it sets its flag at every peer to i + 1, which releases 1 and 3.
// The last round of a launch sends nothing and sets no flag: the next launch has its number again.
// So a block that works on round i has seen the flags of rounds up to i - 2 before 1, up to i - 1
// before 3, from this launch or the one before it. A peer whose flag of round j was seen had read
// all that was sent in rounds up to j - 1; what a launch sent last is read before the next launch
// sets its first flag. Slots are not emptied:
//  - In 1 every peer has read "in" slots up to round i - 3: kInSlots = 3.
//  - In 3 every peer has read "out" slots up to round i - 2: kOutSlots = 2.
// "zero_copy" kernels have the same rounds without slots: callers' buffers are used between the
// flags of a first round, which say that they may be, and those of the last, which say that nobody
// uses them any more. All flags of such a launch have been seen at its end, so what was said holds.
//
// Counts are of 64 bits and live in memory: grids, sizes, kernels and replays may change from
// launch to launch, and launches of the other kernels between them change nothing.

constexpr unsigned int kInSlots = 3;
constexpr unsigned int kOutSlots = 2;
constexpr unsigned int kRoundBlocksMax = 128;

// Kernels whose ranks pass data on to a few others ("queued": rings and trees) have queues of
// messages, one for each pair of ranks, direction and block index. The sender writes message i of a
// queue, counted from 0 for as long as the group lives, into slot i % kQueueSlots in the arena of
// the receiver and then sets the flag `sent` there to i + 1. The receiver reads it and then sets
// the credit `taken` in the sender's arena to i + 1. So a sender waits until taken + kQueueSlots >
// i before it writes, and a receiver until sent > i before it reads: nobody reads a slot too early,
// and nobody fills one that is still read, whatever the launches, grids and kernels in between.
// Both ends count on where the launch before has stopped. What they depend on is only that a launch
// sends as many messages through a queue as it takes out at the other end. Counts are of 32 bits
// and wrap around; ends are never more than kQueueSlots apart, so their difference says which one
// is ahead.

constexpr unsigned int kQueueSlots = 8;  // a power of two
constexpr unsigned int kQueueBlocksMax = 64;

struct ByteRange {
  unsigned long long begin;
  unsigned long long end;
};

constexpr unsigned long long kControlBytes = 64ull << 10;
// Within control: the record of each peer's call; a word for each rank, which that rank's host sets
// when it has left the group and none of its kernels runs any more; the count of rounds of each
// block index of this rank, and the flags that its peers set, one cache line a block and eight
// bytes a source.
constexpr unsigned long long kCallRecordsBegin = 1ull << 10;
constexpr unsigned long long kDeparturesBegin = 2ull << 10;
constexpr unsigned long long kRoundsBegin = 8ull << 10;
constexpr unsigned long long kFlagsBegin = 16ull << 10;
constexpr unsigned long long kFlagLineBytes = 128;
// And the words of queues, see QueueWords: those of each block index.
constexpr unsigned long long kQueueWordsBegin = 32ull << 10;
struct QueueWords {
  unsigned long long sent[kRanksMax];        // flags that sources set
  unsigned long long taken[kRanksMax];       // credits that receivers set
  unsigned long long sent_here[kRanksMax];   // own counts: to each receiver
  unsigned long long taken_here[kRanksMax];  // and from each source
};
static_assert(kQueueWordsBegin + kQueueBlocksMax * sizeof(QueueWords) <= kControlBytes);
// Scratch of one step, for kernels whose data says itself when it is there: first the part of
// "lamport", then the part of "escape", so that calls of both, where ranks do not call the same,
// wait for each other until their deadline instead of taking what is not for them. All bits begin
// as ones. The word beside a slot of "escape", which is seldom used, lies in front of it, in
// scratch of "lamport" of the same step, which no other call of the ranks uses; alone it makes no
// pack of "lamport".
constexpr unsigned long long kScratchBytes = 16ull << 20;
constexpr unsigned long long kScratchBegin = kControlBytes;
constexpr unsigned long long kEscapeOffset = kStepBuffers * kScratchBytes;
// Scratch of one block index of "flagged" kernels: the slots of all peers.
constexpr unsigned long long kFlaggedBlockBytes = 560ull << 10;
constexpr unsigned long long kFlaggedBegin = kScratchBegin + 2 * kEscapeOffset;
// Scratch of one block index of "queued" kernels: the slots of all queues that end here.
constexpr unsigned long long kQueueBlockBytes = 1ull << 20;
constexpr unsigned long long kQueuesBegin = kFlaggedBegin + kRoundBlocksMax * kFlaggedBlockBytes;
constexpr unsigned long long kArenaBytes = kQueuesBegin + kQueueBlocksMax * kQueueBlockBytes;

// By what "escape" kernels XOR every eight bytes on their way, so that those that need a word
// beside them are none that data often holds. No other meaning.
constexpr unsigned long long kEscapeMask = 0x5BD1E995A3C59AC3ull;

// The bytes that one slot takes from one peer.
constexpr unsigned long long FlaggedSlotBytes(int world_size) {
  return kFlaggedBlockBytes / (kInSlots + kOutSlots) /
         static_cast<unsigned long long>(world_size - 1) / 1024 * 1024;
}

// The most bytes that one message takes.
constexpr unsigned long long QueueSlotBytes(int world_size) {
  return kQueueBlockBytes / kQueueSlots / static_cast<unsigned long long>(world_size - 1) / 1024 *
         1024;
}

// all_reduce by "copy_engine" cuts the data into segments, each of one block for each rank, which
// adds it up: block b of segment s begins at (s * world_size + b) * CopyBlockBytes. What is left
// over is less than a line of memory for each block.
constexpr unsigned int kCopySegments = 2;
constexpr unsigned long long CopyBlockBytes(unsigned long long bytes, int world_size) {
  constexpr unsigned long long kLineBytes = 512;
  const unsigned long long blocks = kCopySegments * static_cast<unsigned int>(world_size);
  return bytes / blocks / kLineBytes * kLineBytes;
}

// These ranges are filled with 0xFF when a group is made, and all else with zero.
constexpr ByteRange kSentinelRanges[] = {
    // No launch has the number that this is: a record of a peer that has made no call is behind.
    {kCallRecordsBegin, kCallRecordsBegin + kRanksMax * sizeof(CallRecord)},
    {kScratchBegin, kFlaggedBegin},
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_ABI_H_
