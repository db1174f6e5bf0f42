// Entries with choices: `slots` at `entry * stride` bytes has K of them; the class of a choice is
// (slot - first) / divide, if the slot is not below `first` and the class below `classes`.
#pragma once
#include "block.cuh"

struct Entries {
  const char* slots;
  i64 stride;
  int count, k, divide, first, classes;

  __device__ const i64* of(int entry) const { return (const i64*)(slots + entry * stride); }
  __device__ int class_of(i64 slot) const {
    if (slot < first) return -1;
    const i64 found = (slot - first) / divide;
    return found < classes ? (int)found : -1;
  }
  // Whether choice `j` is the first of its entry that names its class.
  __device__ bool is_first(const i64* own, int j) const {
    for (int i = 0; i < j; ++i)
      if (class_of(own[i]) == class_of(own[j])) return false;
    return true;
  }
  // How many classes below `named` an entry names.
  __device__ int named_below(const i64* own, int named) const {
    int below = 0;
    for (int j = 0; j < k; ++j) {
      const int found = class_of(own[j]);
      below += found >= 0 && found < named && is_first(own, j);
    }
    return below;
  }
};
