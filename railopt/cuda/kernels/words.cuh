// What all kernels have: short names, and shared memory, which lies in `room` as a struct of the
// kernel's own.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr u32 ALL = 0xffffffff;  // lanes of a warp

alignas(16) extern __shared__ u64 room[];
