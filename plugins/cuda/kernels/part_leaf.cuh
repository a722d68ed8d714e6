// Leaves: 8 consecutive elements, the unit of work of a part. Its elements are read and written as
// vectors, or one by one where an array is not aligned to them or a leaf is not full.
#pragma once

#include "part_operation.cuh"

namespace cotune::cuda {

constexpr int kLeafColumns = 8;

// The elements as they lie in memory. Indexes are constants wherever this is used.
template <class T>
struct Leaf {
  static constexpr int kWords = kLeafColumns * T::kBytes / 4;
  unsigned int word[kWords];

  __device__ __forceinline__ auto Bits(int i) const {
    if constexpr (T::kBytes == 8) {
      return static_cast<unsigned long long>(word[2 * i + 1]) << 32 | word[2 * i];
    } else {
      constexpr unsigned int kMask = ~0u >> (32 - 8 * T::kBytes);
      return word[i * T::kBytes / 4] >> (i * T::kBytes % 4 * 8) & kMask;
    }
  }
  // In the order of the elements, all of them.
  template <typename BitsOf>
  __device__ __forceinline__ void SetBits(int i, BitsOf bits) {
    if constexpr (T::kBytes == 8) {
      word[2 * i] = static_cast<unsigned int>(bits);
      word[2 * i + 1] = static_cast<unsigned int>(bits >> 32);
    } else {
      const int shift = i * T::kBytes % 4 * 8;
      unsigned int& to = word[i * T::kBytes / 4];
      to = shift == 0 ? bits : to | bits << shift;
    }
  }
  __device__ __forceinline__ typename T::Lane Get(int i) const { return T::FromBits(Bits(i)); }
  __device__ __forceinline__ void Set(int i, typename T::Lane value) {
    SetBits(i, T::ToBits(value));
  }
};

// The sums of 16-bit floats, rounded to their dtype.
template <class T>
__device__ __forceinline__ Leaf<T> SumOf(const Leaf<T>& a, const Leaf<T>& b) {
  Leaf<T> sum;
#pragma unroll
  for (int w = 0; w < Leaf<T>::kWords; ++w) sum.word[w] = AddPairs(T(), a.word[w], b.word[w]);
  return sum;
}

// The larger of each 16-bit float and 0, as Relu of its elements.
template <class T>
__device__ __forceinline__ Leaf<T> ReluOf(const Leaf<T>& a) {
  Leaf<T> larger;
#pragma unroll
  for (int w = 0; w < Leaf<T>::kWords; ++w)
    larger.word[w] = a.word[w] & ~PairsBelowZero(T(), a.word[w]);
  return larger;
}

// One element as its bits, 0 where it is not there.
template <int kBytes>
__device__ __forceinline__ auto LoadBitsIf(bool is_there, const unsigned char* at) {
  if constexpr (kBytes == 1) {
    return LoadByteIf(is_there, at);
  } else if constexpr (kBytes == 2) {
    return LoadShortIf(is_there, at);
  } else if constexpr (kBytes == 4) {
    return LoadWordIf(is_there, at);
  } else {
    const unsigned int low = LoadWordIf(is_there, at);
    return static_cast<unsigned long long>(LoadWordIf(is_there, at + 4)) << 32 | low;
  }
}

template <class T>
__device__ __forceinline__ typename T::Lane LoadOne(const void* array, unsigned long long index,
                                                    bool is_there = true) {
  const auto* at = static_cast<const unsigned char*>(array) + index * T::kBytes;
  return T::FromBits(LoadBitsIf<T::kBytes>(is_there, at));
}

// The bits of an element, which a copy of it keeps.
template <class T>
__device__ __forceinline__ auto LoadBitsOfOne(const void* array, unsigned long long index,
                                              bool is_there = true) {
  const auto* at = static_cast<const unsigned char*>(array) + index * T::kBytes;
  return LoadBitsIf<T::kBytes>(is_there, at);
}

template <int kBytes, typename BitsOf>
__device__ __forceinline__ void StoreBitsIf(bool is_there, unsigned char* at, BitsOf bits) {
  if constexpr (kBytes == 1) {
    StoreByteIf(is_there, at, bits);
  } else if constexpr (kBytes == 2) {
    StoreShortIf(is_there, at, bits);
  } else {
    StoreWordIf(is_there, at, static_cast<unsigned int>(bits));
    if constexpr (kBytes == 8) {
      StoreWordIf(is_there, at + 4, static_cast<unsigned int>(bits >> 32));
    }
  }
}

template <class T>
__device__ __forceinline__ void StoreOne(void* array, unsigned long long index,
                                         typename T::Lane value, bool is_there) {
  auto* at = static_cast<unsigned char*>(array) + index * T::kBytes;
  StoreBitsIf<T::kBytes>(is_there, at, T::ToBits(value));
}

template <class T, typename BitsOf>
__device__ __forceinline__ void StoreBitsOfOne(void* array, unsigned long long index, BitsOf bits,
                                               bool is_there) {
  auto* at = static_cast<unsigned char*>(array) + index * T::kBytes;
  StoreBitsIf<T::kBytes>(is_there, at, bits);
}

// `count` elements from `first` on: all or none of them where the array is aligned.
template <class T, bool kIsAligned>
__device__ __forceinline__ Leaf<T> LoadLeaf(const void* array, unsigned long long first,
                                            unsigned int count) {
  Leaf<T> leaf = {};
  const auto* at = static_cast<const unsigned char*>(array) + first * T::kBytes;
  if constexpr (!kIsAligned) {
#pragma unroll
    for (unsigned int i = 0; i < kLeafColumns; ++i) {
      leaf.SetBits(static_cast<int>(i), LoadBitsIf<T::kBytes>(i < count, at + i * T::kBytes));
    }
  } else if (count != 0) {
    if constexpr (T::kBytes == 1) {
      const unsigned long long half = LoadPlainHalf(at);
      leaf.word[0] = static_cast<unsigned int>(half);
      leaf.word[1] = static_cast<unsigned int>(half >> 32);
    } else {
#pragma unroll
      for (int p = 0; p < Leaf<T>::kWords / 4; ++p) {
        const Pack pack = LoadPlain(at + p * 16);
#pragma unroll
        for (int w = 0; w < 4; ++w) leaf.word[4 * p + w] = pack.word[w];
      }
    }
  }
  return leaf;
}

template <class T, bool kIsAligned>
__device__ __forceinline__ void StoreLeaf(void* array, unsigned long long first, unsigned int count,
                                          const Leaf<T>& leaf) {
  auto* at = static_cast<unsigned char*>(array) + first * T::kBytes;
  if constexpr (!kIsAligned) {
#pragma unroll
    for (unsigned int i = 0; i < kLeafColumns; ++i) {
      StoreBitsIf<T::kBytes>(i < count, at + i * T::kBytes, leaf.Bits(static_cast<int>(i)));
    }
  } else if (count != 0) {
    if constexpr (T::kBytes == 1) {
      StorePlainHalf(at, static_cast<unsigned long long>(leaf.word[1]) << 32 | leaf.word[0]);
    } else {
#pragma unroll
      for (int p = 0; p < Leaf<T>::kWords / 4; ++p) {
        Pack pack;
#pragma unroll
        for (int w = 0; w < 4; ++w) pack.word[w] = leaf.word[4 * p + w];
        StorePlain(at + p * 16, pack);
      }
    }
  }
}

}  // namespace cotune::cuda
