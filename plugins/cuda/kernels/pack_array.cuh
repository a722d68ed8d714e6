// The caller's buffers, in packs: any address, any number of bytes.
#pragma once

#include "element.cuh"
#include "spin_budget.cuh"

namespace cotune::cuda {

// Low word of {high, low} >> bits, for bits below 32.
__device__ __forceinline__ unsigned int ShiftRight(unsigned int low, unsigned int high,
                                                   unsigned int bits) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(high) << 32 | low) >> bits);
}

// Bytes [begin, end) of the pack at `at`, which are those that an array has of it. Moved in aligned
// words, and at the ends in bytes: nothing else is touched. No access waits for another, so a pack
// in pieces takes hardly longer than a whole one.
class PackPieces {
 public:
  __device__ __forceinline__ PackPieces(const unsigned char* at, unsigned int begin,
                                        unsigned int end)
      : shift_(static_cast<unsigned int>(reinterpret_cast<unsigned long long>(at) & 3)),
        frame_(const_cast<unsigned char*>(at) - shift_),
        begin_(begin + shift_),
        end_(end + shift_) {}

  // The other bytes are zero.
  __device__ __forceinline__ Pack Load() const {
    unsigned int words[kWords];
#pragma unroll
    for (unsigned int w = 0; w < kWords; ++w) words[w] = LoadWordIf(IsFull(w), Word(w));
    unsigned int first_word = 0;
    unsigned int last_word = 0;
#pragma unroll
    for (unsigned int b = 0; b < 3; ++b) {
      first_word |= LoadByteIf(HasFirst(b), frame_ + FirstByte(b)) << (b * 8 + 8);
      last_word |= LoadByteIf(HasLast(b), frame_ + LastByte(b)) << (b * 8);
    }
#pragma unroll
    for (unsigned int w = 0; w < kWords; ++w) {
      words[w] |= (w == begin_ / 4 ? first_word : 0) | (w == end_ / 4 ? last_word : 0);
    }
    Pack p;
#pragma unroll
    for (int w = 0; w < 4; ++w) p.word[w] = ShiftRight(words[w], words[w + 1], shift_ * 8);
    return p;
  }

  __device__ __forceinline__ void Store(const Pack& p) const {
    unsigned int first_word = 0;
    unsigned int last_word = 0;
#pragma unroll
    for (unsigned int w = 0; w < kWords; ++w) {
      // Word w of the frame holds the end of the pack's word w - 1 and the beginning of w.
      const unsigned int low = w == 0 ? 0 : p.word[w == 0 ? 0 : w - 1];
      const unsigned int high = w == 4 ? 0 : p.word[w == 4 ? 0 : w];
      const unsigned int word = shift_ == 0 ? high : ShiftRight(low, high, 32 - shift_ * 8);
      StoreWordIf(IsFull(w), Word(w), word);
      if (w == begin_ / 4) first_word = word;
      if (w == end_ / 4) last_word = word;
    }
#pragma unroll
    for (unsigned int b = 0; b < 3; ++b) {
      StoreByteIf(HasFirst(b), frame_ + FirstByte(b), first_word >> (b * 8 + 8));
      StoreByteIf(HasLast(b), frame_ + LastByte(b), last_word >> (b * 8));
    }
  }

 private:
  // Aligned words that a pack can lie in: the frame. begin_ and end_ count from its beginning.
  static constexpr unsigned int kWords = 5;

  __device__ __forceinline__ unsigned char* Word(unsigned int w) const { return frame_ + 4 * w; }
  __device__ __forceinline__ bool IsFull(unsigned int w) const {
    return 4 * w >= begin_ && 4 * w + 4 <= end_;
  }
  // Bytes of the word that [begin_, end_) begins in, unless it begins with it: 1 to 3.
  __device__ __forceinline__ unsigned int FirstByte(unsigned int b) const {
    return (begin_ & ~3u) + b + 1;
  }
  __device__ __forceinline__ bool HasFirst(unsigned int b) const {
    return (begin_ & 3) != 0 && FirstByte(b) >= begin_ && FirstByte(b) < end_;
  }
  // Bytes of the word that it ends in: 0 to 2. Those of a word that it begins in, too, are above.
  __device__ __forceinline__ unsigned int LastByte(unsigned int b) const {
    return (end_ & ~3u) + b;
  }
  __device__ __forceinline__ bool HasLast(unsigned int b) const {
    const bool is_first = (begin_ & 3) != 0 && begin_ / 4 == end_ / 4;
    return !is_first && LastByte(b) >= begin_ && LastByte(b) < end_;
  }

  unsigned int shift_;  // from the frame to the pack
  unsigned char* frame_;
  unsigned int begin_;
  unsigned int end_;
};

// The bytes [skip, end) behind `data`, in packs from `data` on.
struct PackArray {
  const unsigned char* data;
  unsigned long long end;
  unsigned int skip;  // less than a pack

  __device__ __forceinline__ unsigned long long packs() const {
    return (end + kPackBytes - 1) / kPackBytes;
  }
  __device__ __forceinline__ bool IsWhole(unsigned long long i) const {
    return (reinterpret_cast<unsigned long long>(data) & (kPackBytes - 1)) == 0 &&
           (i + 1) * kPackBytes <= end && (skip == 0 || i != 0);
  }
  // Bytes beyond the array read as zero.
  __device__ __forceinline__ Pack Load(unsigned long long i) const {
    return IsWhole(i) ? LoadWhole(i) : LoadPieces(i);
  }
  __device__ __forceinline__ Pack LoadWhole(unsigned long long i) const {
    return LoadPlain(data + i * kPackBytes);
  }
  // Any pack, without a branch.
  __device__ __forceinline__ Pack LoadPieces(unsigned long long i) const {
    return Pieces(i).Load();
  }
  __device__ __forceinline__ void Store(unsigned long long i, const Pack& p) const {
    if (IsWhole(i)) {
      StorePlain(const_cast<unsigned char*>(data) + i * kPackBytes, p);
    } else {
      Pieces(i).Store(p);
    }
  }

 private:
  __device__ __forceinline__ PackPieces Pieces(unsigned long long i) const {
    const unsigned long long at = i * kPackBytes;
    const unsigned int begin = i == 0 ? skip : 0;
    const unsigned int has = at >= end               ? begin
                             : at + kPackBytes > end ? static_cast<unsigned int>(end - at)
                                                     : kPackBytes;
    return {data + at, begin, has};
  }
};

__device__ __forceinline__ PackArray ArrayAt(const void* base, unsigned long long offset,
                                             unsigned long long bytes) {
  return PackArray{static_cast<const unsigned char*>(base) + offset, bytes, 0};
}

// packs[j] = pack i of `array`, where {array, i} = from(j), for all j with has(j). None is used
// before all are on their way.
struct PackPlace {
  PackArray array;
  unsigned long long i;
};

template <int kPacks, typename Has, typename From>
__device__ __forceinline__ void LoadTogether(Pack (&packs)[kPacks], Has has, From from) {
  bool are_whole = true;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    are_whole = are_whole && (!has(j) || from(j).array.IsWhole(from(j).i));
  }
  if (are_whole) {
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (has(j)) packs[j] = from(j).array.LoadWhole(from(j).i);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (has(j)) packs[j] = from(j).array.LoadPieces(from(j).i);
    }
  }
}

// send(peer, pack) for every peer with is_for(peer), beginning with the next rank; the pack is that
// at from(peer). As many are loaded before the first is sent as registers allow.
template <typename IsFor, typename From, typename Send>
__device__ __forceinline__ void SendTogether(int rank, IsFor is_for, From from, Send send) {
  constexpr int kPacks = kPeers < 4 ? kPeers : COTUNE_UNROLL == 1 ? 2 : 1;
#pragma unroll
  for (int first = 0; first < kPeers; first += kPacks) {
    const auto has = [&](int j) {
      return first + j < kPeers && is_for(PeerAfter(rank, first + j));
    };
    Pack packs[kPacks];
    LoadTogether(packs, has, [&](int j) { return from(PeerAfter(rank, first + j)); });
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (has(j)) send(PeerAfter(rank, first + j), packs[j]);
    }
  }
}

}  // namespace cotune::cuda
