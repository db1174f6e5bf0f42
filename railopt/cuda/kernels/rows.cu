// Rows by index.  With UNIT they are copied, so many bytes at once, `fill` in every byte where the index
// is -1.  Else out[i] = the sum of in[index[i * many + m]] over m, those of -1 left out, added in the
// order of m and rounded to the type IN each time, in the end to OUT.
#include "words.cuh"

enum Type { FLOAT, DOUBLE, BFLOAT, HALF };
extern "C" __device__ const u32 shared_bytes = 16;

struct Rows {
  const char* in;
  i64 in_step;  // bytes from row to row
  char* out;
  i64 out_step;
  const int* index;
  i64 rows;
  int width, many, fill;  // width: items of a row
};

struct alignas(16) Sixteen {
  u64 low, high;
};
template <int bytes> struct Unit;
template <> struct Unit<1> { typedef u8 Is; };
template <> struct Unit<2> { typedef u16 Is; };
template <> struct Unit<4> { typedef u32 Is; };
template <> struct Unit<8> { typedef u64 Is; };
template <> struct Unit<16> { typedef Sixteen Is; };

template <class To, class From>
__device__ To bits_as(From from) {
  union {
    From from;
    To to;
  } both;
  both.from = from;
  return both.to;
}

template <int type> struct Number;
#ifdef __CUDACC__  // a CPU's compiler may not know such numbers
__device__ float from_half(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ u16 to_half(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
template <> struct Number<HALF> {
  typedef u16 In;
  typedef float Sum;
  static __device__ Sum read(In in) { return from_half(in); }
  static __device__ In rounded(Sum sum) { return to_half(sum); }
};
#endif
template <> struct Number<FLOAT> {
  typedef float In;
  typedef float Sum;
  static __device__ Sum read(In in) { return in; }
  static __device__ In rounded(Sum sum) { return sum; }
};
template <> struct Number<DOUBLE> {
  typedef double In;
  typedef double Sum;
  static __device__ Sum read(In in) { return in; }
  static __device__ In rounded(Sum sum) { return sum; }
};
template <> struct Number<BFLOAT> {
  typedef u16 In;
  typedef float Sum;
  static __device__ Sum read(In in) { return bits_as<float>((u32)in << 16); }
  static __device__ In rounded(Sum sum) {
    const u32 bits = bits_as<u32>(sum);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS) plan(Rows given, i64 first, i64 step) {
  const u64 items = given.rows * given.width;
  for (u64 at = first + (u64)blockIdx.x * THREADS + threadIdx.x; at < items; at += step) {
    const bool small = items >> 32 == 0;
    const u64 row = small ? (u32)at / (u32)given.width : at / given.width;
    const i64 item = at - row * given.width;
#ifdef UNIT
    typedef Unit<UNIT>::Is Item;
    Item value;
    const i64 from = given.index ? given.index[row] : (i64)row;
    if (from >= 0) value = ((const Item*)(given.in + from * given.in_step))[item];
    else
      for (int i = 0; i < UNIT; ++i) ((u8*)&value)[i] = given.fill;
    ((Item*)(given.out + row * given.out_step))[item] = value;
#else
    typedef Number<IN> From;
    From::Sum sum = 0;
    for (int m = 0; m < given.many; ++m) {
      const i64 from = given.index[row * given.many + m];
      if (from < 0) continue;
      const From::Sum added = From::read(((const From::In*)(given.in + from * given.in_step))[item]);
      sum = From::read(From::rounded(sum + added));
    }
    ((Number<OUT>::In*)(given.out + row * given.out_step))[item] = Number<OUT>::rounded(sum);
#endif
  }
}
