// Kernels for the CPU behind a plain C interface: no Python, no PyTorch headers.
// Work is split so that threads never write to the same place; every sum is taken in a fixed order, so that the same
// input and the same number of threads give the same bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_WIDE 1
#include <immintrin.h>
#endif

extern "C" {
// Mirrors `ScanProblem` in library.py. Strides count floats; those of tensors are batch, pixel, (path,) token.
struct ScanProblem {
    int64_t b, p, k, rows, columns, d, n, rank, threads, lanes;
    int64_t codes[8];  // per path: bit 0 down the columns, bit 1 backwards
    int64_t x_strides[3], delta_strides[4], B_strides[4], C_strides[4], weight_strides[3], out_strides[3];
    int64_t dy_strides[3], dx_strides[3], ddelta_strides[4];
    // Where rank is not 0, a token's delta has so many numbers, to be multiplied by delta_weight (k, rank, d); forward only.
    const float *x, *delta, *delta_weight, *A, *B, *C, *D, *bias, *weight, *dy;
    float *out, *dx, *ddelta, *dA, *dB, *dC, *dD, *dbias;
};

// Mirrors `RowsProblem` in library.py. Rows of c neighbouring numbers; strides count floats from row to row.
// sum = x · skip + update · gates where there is an update, else x; normal = layer norm of it, times silu(gate).
struct RowsProblem {
    int64_t rows, c, rows_per_image, threads, lanes;
    int64_t x_stride, update_stride, gate_stride;
    float epsilon;
    const float *x, *skip, *update, *gates, *weight, *bias, *gate;  // gates (images, c); null where there is none
    float *sum, *normal;  // dense; null where it is not wanted
};

// Mirrors `SampleProblem` in library.py. Features and result have neighbouring channels; strides are of image, row, column.
struct SampleProblem {
    int64_t images, c, h, w, rows, columns, threads, lanes;
    int64_t features_strides[3], place_strides[4];  // of places: image, x or y, row, column
    const float *features, *place;
    float* out;  // dense (images, rows, columns, c)
};
}

template <typename T>
struct Aligned {
    typedef T value_type;
    Aligned() = default;
    template <typename U>
    Aligned(const Aligned<U>&) {}
    T* allocate(std::size_t count) {
        return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(64)));
    }
    void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t(64)); }
    template <typename U>
    bool operator==(const Aligned<U>&) const { return true; }
    template <typename U>
    bool operator!=(const Aligned<U>&) const { return false; }
};

// One thread's share of the parameters' gradients.
struct Sums {
    std::vector<float> A, bias, D;
    explicit Sums(const ScanProblem& q) : A(q.k * q.d * q.n), bias(q.k * q.d), D(q.d) {}
};

static inline int64_t token_at(const ScanProblem& q, int64_t code, int64_t step) {
    if (code & 2) step = q.rows * q.columns - 1 - step;
    return code & 1 ? (step % q.rows) * q.columns + step / q.rows : step;
}

#define NAMESPACE plain
#define LANES 4
#include "lanes.h"
#include "rows_lanes.h"
#include "scan_lanes.h"
#undef NAMESPACE
#undef LANES

#ifdef HAS_WIDE
#if defined(__clang__)
#define BEGIN_TARGET_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define BEGIN_TARGET_AVX512 _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512dq,avx2,fma\"))), apply_to = function)")
#define END_TARGET _Pragma("clang attribute pop")
#else
#define BEGIN_TARGET_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define BEGIN_TARGET_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512dq,avx2,fma\")")
#define END_TARGET _Pragma("GCC pop_options")
#endif

BEGIN_TARGET_AVX2
#define NAMESPACE avx2
#define LANES 8
#include "lanes.h"
#include "rows_lanes.h"
#include "scan_lanes.h"
#undef NAMESPACE
#undef LANES
END_TARGET

BEGIN_TARGET_AVX512
#define NAMESPACE avx512
#define LANES 16
#include "lanes.h"
#include "rows_lanes.h"
#include "scan_lanes.h"
#undef NAMESPACE
#undef LANES
END_TARGET
#endif

// The widest vectors this processor has, at most `limit` lanes (0: no limit).
static int64_t lanes_here(int64_t limit) {
#ifdef HAS_WIDE
    const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (fma && wide && (limit == 0 || limit >= 16)) return 16;
    if (fma && (limit == 0 || limit >= 8)) return 8;
#endif
    return 4;
}

// Calls `function` of the widest instruction set.
#ifdef HAS_WIDE
#define FOR_LANES(lanes, function, ...)                    \
    ((lanes) == 16  ? avx512::function(__VA_ARGS__)        \
     : (lanes) == 8 ? avx2::function(__VA_ARGS__)          \
                    : plain::function(__VA_ARGS__))
#else
#define FOR_LANES(lanes, function, ...) plain::function(__VA_ARGS__)
#endif

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Groups of channels a sequence is cut into, so that sequences × groups is a multiple of the threads.
static int64_t groups_for(const ScanProblem& q, int64_t vectors, int64_t threads) {
    const int64_t sequences = q.b * q.p;
    if (sequences >= 8 * threads) return 1;
    return std::min(vectors, threads / std::gcd(threads, sequences));
}

template <typename Unit>
static void for_each_unit(int64_t units, int64_t threads, Unit unit) {
#ifdef _OPENMP
#pragma omp parallel num_threads((int)std::max<int64_t>(1, std::min(units, threads)))
    {
        const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
        for (int64_t u = units * me / team; u < units * (me + 1) / team; u++) unit(u, me);
    }
#else
    for (int64_t u = 0; u < units; u++) unit(u, 0);
#endif
}

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

EXPORT int64_t scan_problem_size() { return sizeof(ScanProblem); }

EXPORT int64_t scan_lanes(int64_t limit) { return lanes_here(limit); }

EXPORT int64_t scan_has_threads() {
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

EXPORT void scan_forward(const ScanProblem* problem) {
    const ScanProblem& q = *problem;
    const int64_t lanes = lanes_here(q.lanes), vectors = ceil_div(q.d, lanes), threads = std::max<int64_t>(1, q.threads);
    const int64_t groups = groups_for(q, vectors, threads);
    for_each_unit(q.b * q.p * groups, threads, [&](int64_t unit, int64_t) {
        const int64_t group = unit % groups;
        const int64_t first = vectors * group / groups, last = vectors * (group + 1) / groups;
        FOR_LANES(lanes, forward_any, q, unit / groups, first, last);
    });
}

EXPORT void scan_backward(const ScanProblem* problem) {
    const ScanProblem& q = *problem;
    const int64_t lanes = lanes_here(q.lanes), vectors = ceil_div(q.d, lanes), threads = std::max<int64_t>(1, q.threads);
    const int64_t groups = groups_for(q, vectors, threads), size = q.b * q.p * q.k * q.rows * q.columns * q.n;
    std::vector<Sums> sums(threads, Sums(q));
    // Every group of channels has its share of dB and dC; the first group's place is the result's own.
    std::vector<float> shares(2 * size * (groups - 1));
    for_each_unit(q.b * q.p * groups, threads, [&](int64_t unit, int64_t thread) {
        const int64_t group = unit % groups;
        const int64_t first = vectors * group / groups, last = vectors * (group + 1) / groups;
        float* dB = group ? shares.data() + 2 * size * (group - 1) : q.dB;
        float* dC = group ? shares.data() + 2 * size * (group - 1) + size : q.dC;
        FOR_LANES(lanes, backward_any, q, unit / groups, first, last, dB, dC, sums[thread]);
    });
    for (int64_t group = 1; group < groups; group++)
        for (int64_t i = 0; i < size; i++) {
            q.dB[i] += shares[2 * size * (group - 1) + i];
            q.dC[i] += shares[2 * size * (group - 1) + size + i];
        }
    const Sums zero(q);
    std::copy(zero.A.begin(), zero.A.end(), q.dA);
    std::copy(zero.bias.begin(), zero.bias.end(), q.dbias);
    std::copy(zero.D.begin(), zero.D.end(), q.dD);
    for (const Sums& share : sums) {
        for (std::size_t i = 0; i < share.A.size(); i++) q.dA[i] += share.A[i];
        for (std::size_t i = 0; i < share.bias.size(); i++) q.dbias[i] += share.bias[i];
        for (std::size_t i = 0; i < share.D.size(); i++) q.dD[i] += share.D[i];
    }
}

EXPORT int64_t rows_problem_size() { return sizeof(RowsProblem); }

EXPORT int64_t sample_problem_size() { return sizeof(SampleProblem); }

// Rows that a thread takes at a time: fewer in all are not worth a second thread.
constexpr int64_t ROWS = 256;

EXPORT void normalize_rows(const RowsProblem* problem) {
    const RowsProblem& q = *problem;
    const int64_t lanes = lanes_here(q.lanes);
    for_each_unit(ceil_div(q.rows, ROWS), std::max<int64_t>(1, q.threads), [&](int64_t unit, int64_t) {
        FOR_LANES(lanes, rows, q, unit * ROWS, std::min(q.rows, (unit + 1) * ROWS));
    });
}

EXPORT void sample_bilinear(const SampleProblem* problem) {
    const SampleProblem& q = *problem;
    const int64_t lanes = lanes_here(q.lanes);
    for_each_unit(q.images * q.rows, std::max<int64_t>(1, q.threads), [&](int64_t unit, int64_t) {
        FOR_LANES(lanes, sample, q, unit / q.rows, unit % q.rows);
    });
}
