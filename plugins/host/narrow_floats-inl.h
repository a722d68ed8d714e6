// How floats of 16 and 8 bits are read into f32 lanes, written from them and rounded to. Highway
// compiles this header once for each vector unit.
#if defined(COTUNE_PLUGINS_HOST_NARROW_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COTUNE_PLUGINS_HOST_NARROW_FLOATS_INL_H_
#undef COTUNE_PLUGINS_HOST_NARROW_FLOATS_INL_H_
#else
#define COTUNE_PLUGINS_HOST_NARROW_FLOATS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "plugins/host/float8.h"
#include "plugins/host/sdk_names.h"
#include "plugins/host/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {

struct Bf16 {
  using Element = uint16_t;
  static HWY_INLINE hn::Vec<F32> Load(const uint16_t* from) {
    const F32 d;
    const hn::Rebind<uint16_t, F32> d16;
    const hn::RebindToUnsigned<F32> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
  }
  // To nearest, ties to even, in the upper half of each lane. The lower half is of no account.
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<F32>> Bits(hn::Vec<F32> value) {
    const hn::RebindToUnsigned<F32> d32;
    const auto bits = hn::BitCast(d32, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
    return hn::IfThenElse(is_nan, hn::Or(bits, hn::Set(d32, 0x400000u)), rounded);
  }
  static HWY_INLINE void Store(hn::Vec<F32> value, uint16_t* to) {
    const hn::Rebind<uint16_t, F32> d16;
    const hn::RebindToSigned<F32> d32_signed;
    // The value fits 16 bits, so the saturating narrowing keeps every bit of it.
    const auto element = hn::ShiftRight<16>(Bits(value));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(d32_signed, element)), d16, to);
  }
  static HWY_INLINE void StoreTwo(hn::Vec<F32> first, hn::Vec<F32> second, uint16_t* to) {
#if HWY_TARGET == HWY_SCALAR
    Store(first, to);
    Store(second, to + hn::Lanes(F32()));
#else
    StoreUpperHalves(Bits(first), Bits(second), to);
#endif
  }
  // The values are rounded, so that the bits of each are all in its upper half.
  static HWY_INLINE void StoreTwoRounded(hn::Vec<F32> first, hn::Vec<F32> second, uint16_t* to) {
#if HWY_TARGET == HWY_SCALAR
    StoreTwo(first, second, to);
#else
    StoreUpperHalves(first, second, to);
#endif
  }
  static HWY_INLINE hn::Vec<F32> Rounded(hn::Vec<F32> value) {
    const hn::RebindToUnsigned<F32> d32;
    return hn::BitCast(F32(), hn::And(Bits(value), hn::Set(d32, 0xffff0000u)));
  }
  // For the result of an operation on bf16 numbers: its NaNs are quiet, and the lower half of each
  // is 0, so that no carry changes them.
  static HWY_INLINE hn::Vec<F32> RoundedResult(hn::Vec<F32> value) {
    const hn::RebindToUnsigned<F32> d32;
    const auto bits = hn::BitCast(d32, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
    return hn::BitCast(F32(), hn::And(rounded, hn::Set(d32, 0xffff0000u)));
  }
  static float FromElement(uint16_t element) { return F32FromBf16(element); }
  static uint16_t ToElement(float value) { return Bf16FromF32(value); }

 private:
#if HWY_TARGET != HWY_SCALAR
  template <class Vector>
  static HWY_INLINE void StoreUpperHalves(Vector first, Vector second, uint16_t* to) {
    // The upper halves of both are the odd lanes of 16 bits.
    const hn::Repartition<uint16_t, F32> d16;
    hn::StoreU(hn::ConcatOdd(d16, hn::BitCast(d16, second), hn::BitCast(d16, first)), d16, to);
  }
#endif
};

struct F16 {
  using Element = uint16_t;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  using Halves = hn::Rebind<hwy::float16_t, F32>;
  static HWY_INLINE hn::Vec<F32> Load(const uint16_t* from) {
    const hn::Rebind<uint16_t, F32> d16;
    return hn::PromoteTo(F32(), hn::BitCast(Halves(), hn::LoadU(d16, from)));
  }
  static HWY_INLINE void Store(hn::Vec<F32> value, uint16_t* to) {
    const hn::Rebind<uint16_t, F32> d16;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(Halves(), value)), d16, to);
  }
  static HWY_INLINE hn::Vec<F32> Rounded(hn::Vec<F32> value) {
    return hn::PromoteTo(F32(), hn::DemoteTo(Halves(), value));
  }
#else  // no instruction that rounds to nearest: one lane at a time
  static HWY_INLINE hn::Vec<F32> Load(const uint16_t* from) {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    for (size_t i = 0; i < hn::Lanes(F32()); ++i) lanes[i] = F32FromF16(from[i]);
    return hn::Load(F32(), lanes);
  }
  static HWY_INLINE void Store(hn::Vec<F32> value, uint16_t* to) {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(value, F32(), lanes);
    for (size_t i = 0; i < hn::Lanes(F32()); ++i) to[i] = F16FromF32(lanes[i]);
  }
  static HWY_INLINE hn::Vec<F32> Rounded(hn::Vec<F32> value) {
    uint16_t halves[HWY_MAX_BYTES / sizeof(float)];
    Store(value, halves);
    return Load(halves);
  }
#endif
  static HWY_INLINE void StoreTwo(hn::Vec<F32> first, hn::Vec<F32> second, uint16_t* to) {
    Store(first, to);
    Store(second, to + hn::Lanes(F32()));
  }
  static HWY_INLINE hn::Vec<F32> RoundedResult(hn::Vec<F32> value) { return Rounded(value); }
  static float FromElement(uint16_t element) { return F32FromF16(element); }
  static uint16_t ToElement(float value) { return F16FromF32(value); }
};

// The formats of float8.h in whole vectors, with the same bits.
template <class Format, int kMantissaBits, bool kHasInfinity>
struct VectorsOfFloat8 {
  using Element = uint8_t;
  using U32 = hn::RebindToUnsigned<F32>;
  using Codes = hn::Vec<U32>;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr uint32_t kBiases = 127 - Format::kBias;

  static HWY_INLINE hn::Vec<F32> Decode(Codes codes) {
    const F32 d;
    const U32 d32;
    const hn::RebindToSigned<F32> d_signed;
    const auto magnitude = hn::And(codes, hn::Set(d32, 0x7fu));
    const auto number = hn::BitCast(d_signed, magnitude);
    const auto normal = hn::Add(hn::ShiftLeft<kShift>(magnitude), hn::Set(d32, kBiases << 23));
    // A subnormal is a whole number of the smallest one, which needs no subnormal f32.
    const auto smallest = hn::BitCast(d, hn::Set(d32, (kBiases + 1 - kMantissaBits) << 23));
    const auto subnormal = hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, number), smallest));
    const auto is_subnormal =
        hn::RebindMask(d32, hn::Lt(number, hn::Set(d_signed, 1 << kMantissaBits)));
    auto bits = hn::IfThenElse(is_subnormal, subnormal, normal);
    const auto is_infinity = hn::Eq(magnitude, hn::Set(d32, Format::kBeyond));
    if (kHasInfinity) bits = hn::IfThenElse(is_infinity, hn::Set(d32, 0x7f800000u), bits);
    const auto largest = static_cast<int32_t>(kHasInfinity ? Format::kBeyond : Format::kBeyond - 1);
    const auto is_nan = hn::RebindMask(d32, hn::Gt(number, hn::Set(d_signed, largest)));
    bits = hn::IfThenElse(is_nan, hn::Set(d32, 0x7fc00000u), bits);
    return hn::BitCast(d, hn::Or(bits, hn::ShiftLeft<24>(hn::Xor(codes, magnitude))));
  }

  static HWY_INLINE Codes Encode(hn::Vec<F32> value) {
    const F32 d;
    const U32 d32;
    const hn::RebindToSigned<F32> d_signed;
    const auto bits = hn::BitCast(d32, value);
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffffffu));
    const auto sign = hn::ShiftRight<24>(hn::Xor(bits, magnitude));
    // To nearest, ties to even: half of the last bit that is kept, less one where that bit is 0.
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(d32, 1u));
    const auto half = hn::Add(odd, hn::Set(d32, (1u << (kShift - 1)) - 1));
    const auto normal = hn::Sub(hn::ShiftRight<kShift>(hn::Add(magnitude, half)),
                                hn::Set(d32, kBiases << kMantissaBits));
    // The last bit of this number is the smallest subnormal, so that the sum is rounded to it.
    const auto rounder = hn::Set(d32, (kBiases + 1 + kShift) << 23);
    const auto subnormal = hn::Sub(
        hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, rounder))), rounder);
    const auto is_subnormal =
        hn::RebindMask(d32, hn::Lt(hn::BitCast(d_signed, magnitude),
                                   hn::Set(d_signed, static_cast<int32_t>((kBiases + 1) << 23))));
    auto code = hn::BitCast(d_signed, hn::IfThenElse(is_subnormal, subnormal, normal));
    code = hn::Min(code, hn::Set(d_signed, static_cast<int32_t>(Format::kBeyond)));
    const auto is_nan = hn::RebindMask(d_signed, hn::IsNaN(value));
    code = hn::IfThenElse(is_nan, hn::Set(d_signed, static_cast<int32_t>(Format::kNan)), code);
    return hn::Or(hn::BitCast(d32, code), sign);
  }

  static HWY_INLINE hn::Vec<F32> Load(const uint8_t* from) {
    const hn::Rebind<uint8_t, F32> d8;
    return Decode(hn::PromoteTo(U32(), hn::LoadU(d8, from)));
  }
  static HWY_INLINE void Store(hn::Vec<F32> value, uint8_t* to) {
    const hn::Rebind<uint8_t, F32> d8;
    const hn::RebindToSigned<F32> d_signed;
    // The value fits 8 bits, so the saturating narrowing keeps every bit of it.
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(d_signed, Encode(value))), d8, to);
  }
  static HWY_INLINE void StoreTwo(hn::Vec<F32> first, hn::Vec<F32> second, uint8_t* to) {
    Store(first, to);
    Store(second, to + hn::Lanes(F32()));
  }
  static HWY_INLINE hn::Vec<F32> Rounded(hn::Vec<F32> value) { return Decode(Encode(value)); }
  static float FromElement(uint8_t element) { return Format::ToF32(element); }
  static uint8_t ToElement(float value) { return Format::FromF32(value); }
};
using VectorsOfE4M3 = VectorsOfFloat8<F8E4M3, 3, false>;
using VectorsOfE5M2 = VectorsOfFloat8<F8E5M2, 2, true>;

}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // COTUNE_PLUGINS_HOST_NARROW_FLOATS_INL_H_
