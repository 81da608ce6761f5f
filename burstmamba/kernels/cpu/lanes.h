// Vectors of one width. Included once per instruction set by kernels.cpp, which defines LANES and NAMESPACE, before the
// kernels written with them: a vector holds LANES neighbouring channels.
namespace NAMESPACE {

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int vi __attribute__((vector_size(LANES * 4)));

static inline vf splat(float v) { return vf{} + v; }

// The first `lanes` of a vector that lies in a row of channels; the others are 0, and are left alone.
static inline vf load(const float* from, int lanes) {
    if (lanes == LANES) {
        vf whole;
        std::memcpy(&whole, from, sizeof(vf));
        return whole;
    }
#if LANES == 16
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1 << lanes) - 1), from);
#else
    vf part = vf{};
    std::memcpy(&part, from, sizeof(float) * lanes);
    return part;
#endif
}

static inline void store(float* to, vf v, int lanes) {
    if (lanes == LANES)
        std::memcpy(to, &v, sizeof(vf));
    else
#if LANES == 16
        _mm512_mask_storeu_ps(to, (__mmask16)((1 << lanes) - 1), (__m512)v);
#else
        std::memcpy(to, &v, sizeof(float) * lanes);
#endif
}

// 2^(u v) for u v <= 126: relative error 1.6e-7, 6e-8 for u v next to 0, exactly 1 for 0, and exactly 0 far below it.
static inline vf exp2_lanes(vf u, vf v) {
#if LANES == 16
    const vf t = u * v + 0.5f;
    const vf f = (vf)_mm512_maskz_reduce_ps((__mmask16)-1, (__m512)t, 9);  // t - floor(t)
    vf p = f * 0.00132647273f + 0.00635533128f;  // 2^(f - 1/2)
    p = p * f + 0.0394804925f;
    p = p * f + 0.169810578f;
    p = p * f + 0.490133852f;
    p = p * f + 0.707106709f;
    return (vf)_mm512_maskz_scalef_ps((__mmask16)-1, (__m512)p, (__m512)t);  // times 2^floor(t)
#else
    const float rounder = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to whole numbers, in the lowest bits
    vf t = u * v;
    t = t > -127.0f ? t : splat(-127.0f);  // whose bits come out as those of 0
    const vf shifted = t + rounder, f = t - (shifted - rounder);
    vf p = f * 0.0013264724f + 0.0096715129f;
    p = p * f + 0.0555073375f;
    p = p * f + 0.2402224208f;
    p = p * f + 0.6931469776f;
    p = p * f + 1.0f;
    return (vf)((vi)p + ((vi)shifted << 23));
#endif
}

static inline float sum(vf v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

}  // namespace NAMESPACE
