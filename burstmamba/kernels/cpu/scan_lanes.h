// The selective scan for one width of vectors; every state of a channel is a vector of its own.
namespace NAMESPACE {

struct Step {
    vf delta;  // softplus, times weight
    vf slope;  // its derivative
};

// softplus(v) = max(v, 0) + log(1 + q), q = exp(-|v|); log(1 + q) = 2 artanh(q / (2 + q)) keeps a small q's digits.
template <bool SLOPE>
static inline Step softplus(vf v, float weight) {
    const vf q = exp2_lanes((vf)((vi)v | (int)0x80000000), splat(1.4426950408889634f));
    const vf z = q / (q + 2.0f), z2 = z * z;
    // artanh(z) / z for z <= 1/3, relative error 5e-9.
    vf s = z2 * 0.140059965f + 0.140009021f;
    s = s * z2 + 0.200107637f;
    s = s * z2 + 0.333332081f;
    s = s * z2 + 1.0f;
    Step step;
    step.delta = ((v < 0.0f ? vf{} : v) + (z + z) * s) * weight;  // NaN stays NaN
    if (SLOPE) step.slope = (v < 0.0f ? q : splat(1.0f)) / (q + 1.0f) * weight;
    return step;
}

// One sequence, one path, and the vectors of channels [first, last) of it.
struct Walk {
    const ScanProblem& q;
    int64_t sequence, path, first, last;
    const float *x, *delta, *B, *C, *weight;

    Walk(const ScanProblem& q, int64_t sequence, int64_t path, int64_t first, int64_t last)
        : q(q), sequence(sequence), path(path), first(first), last(last) {
        const int64_t b = sequence / q.p, p = sequence % q.p;
        x = q.x + b * q.x_strides[0] + p * q.x_strides[1];
        delta = q.delta + b * q.delta_strides[0] + p * q.delta_strides[1] + path * q.delta_strides[2];
        B = q.B + b * q.B_strides[0] + p * q.B_strides[1] + path * q.B_strides[2];
        C = q.C + b * q.C_strides[0] + p * q.C_strides[1] + path * q.C_strides[2];
        weight = q.weight ? q.weight + b * q.weight_strides[0] + p * q.weight_strides[1] : nullptr;
    }
    int lanes(int64_t v) const { return (int)std::min<int64_t>(LANES, q.d - v * LANES); }
    vf parameter(const float* from, int64_t v) const { return load(from + path * q.d + v * LANES, lanes(v)); }
    vf tokens(const float* from, int64_t stride, int64_t token, int64_t v) const {
        return load(from + token * stride + v * LANES, lanes(v));
    }
    template <bool SLOPE>
    Step step(int64_t token, int64_t v, vf bias) const {
        return scaled<SLOPE>(token, tokens(delta, q.delta_strides[3], token, v) + bias);
    }
    template <bool SLOPE>
    Step scaled(int64_t token, vf before) const {
        return softplus<SLOPE>(before, weight ? weight[token * q.weight_strides[2]] : 1.0f);
    }
    // The columns of Δ's projection for these channels.
    void load_projection(vf* columns, int64_t v) const {
        for (int64_t r = 0; r < q.rank; r++)
            columns[r] = load(q.delta_weight + (path * q.rank + r) * q.d + v * LANES, lanes(v));
    }
    // Δ before softplus, of a few tokens.
    void project(vf* before, const vf* columns, const int64_t* order, int count, vf bias) const {
        const int64_t rank = q.rank, stride = q.delta_strides[3];
        for (int u = 0; u < count; u++) {
            const float* row = delta + order[u] * stride;
            vf sum = bias;
            for (int64_t r = 0; r < rank; r++) sum += columns[r] * row[r];
            before[u] = sum;
        }
    }
    const float* B_at(int64_t token) const { return B + token * q.B_strides[3]; }
    const float* C_at(int64_t token) const { return C + token * q.C_strides[3]; }
    // A, times log2(e), as (vectors, n) vectors.
    void load_A(vf* A) const {
        const int64_t n = q.n;
        for (int64_t v = first; v < last; v++)
            for (int64_t s = 0; s < n; s++) {
                vf a = vf{};
                for (int i = 0; i < lanes(v); i++)
                    a[i] = q.A[(path * q.d + v * LANES + i) * n + s] * 1.4426950408889634f;
                A[(v - first) * n + s] = a;
            }
    }
    // The sum over paths of D: the skip is the same for each of them.
    vf skip(int64_t v) const {
        vf total = vf{};
        for (int64_t k = 0; k < q.k; k++) total += load(q.D + k * q.d + v * LANES, lanes(v));
        return total;
    }
};

// TILE tokens are walked for one vector of channels before the next vector's turn, so that rows stay in the cache.
constexpr int TILE = 32;

template <int N>
static void forward(const ScanProblem& q, int64_t sequence, int64_t first, int64_t last) {
    const int64_t n = N ? N : q.n, tokens = q.rows * q.columns, vectors = last - first;
    std::vector<vf, Aligned<vf>> memory(2 * vectors * n + q.rank);
    vf *A = memory.data(), *states = A + vectors * n, *columns = states + vectors * n;
    float* out = q.out + (sequence / q.p) * q.out_strides[0] + (sequence % q.p) * q.out_strides[1];
    int64_t order[TILE];
    vf deltas[TILE], drivens[TILE], ys[TILE];
    for (int64_t k = 0; k < q.k; k++) {
        const Walk walk(q, sequence, k, first, last);
        walk.load_A(A);
        std::fill(states, states + vectors * n, vf{});
        for (int64_t start = 0; start < tokens; start += TILE) {
            const int count = (int)std::min<int64_t>(TILE, tokens - start);
            for (int u = 0; u < count; u++) order[u] = token_at(q, q.codes[k], start + u);
            for (int64_t v = first; v < last; v++) {
                const vf* a = A + (v - first) * n;
                vf* carried = states + (v - first) * n;
                vf local[N ? N : 1];
                vf* state = N ? std::copy(carried, carried + N, local) - N : carried;
                const vf bias = walk.parameter(q.bias, v), skip = walk.skip(v);
                // First all that a token needs but its state: these are independent of each other, and of far rows.
                if (q.rank) {
                    walk.load_projection(columns, v);
                    walk.project(deltas, columns, order, count, bias);
                }
                for (int u = 0; u < count; u++) {
                    const vf x = walk.tokens(walk.x, q.x_strides[2], order[u], v);
                    deltas[u] = (q.rank ? walk.scaled<false>(order[u], deltas[u]) : walk.step<false>(order[u], v, bias)).delta;
                    drivens[u] = deltas[u] * x;
                    ys[u] = k ? load(out + order[u] * q.out_strides[2] + v * LANES, walk.lanes(v)) : skip * x;
                }
                for (int u = 0; u < count; u++) {
                    const vf delta = deltas[u], driven = drivens[u];
                    const float *B = walk.B_at(order[u]), *C = walk.C_at(order[u]);
                    // The next vector's turn comes when these have arrived: its rows are too far apart to be guessed.
                    // Its last lane's line is fetched; the first lane's is this one or the one that this vector ends in.
                    if (q.rank == 0) __builtin_prefetch(walk.delta + order[u] * q.delta_strides[3] + (v + 2) * LANES - 1);
                    __builtin_prefetch(walk.x + order[u] * q.x_strides[2] + (v + 2) * LANES - 1);
                    __builtin_prefetch(out + order[u] * q.out_strides[2] + (v + 2) * LANES - 1, 1);
                    vf y = ys[u], y2 = vf{};
#pragma GCC unroll 16
                    for (int64_t s = 0; s < n; s++) {
                        state[s] = exp2_lanes(delta, a[s]) * state[s] + driven * B[s];
                        if (s & 1)
                            y2 += state[s] * C[s];
                        else
                            y += state[s] * C[s];
                    }
                    store(out + order[u] * q.out_strides[2] + v * LANES, y + y2, walk.lanes(v));
                }
                if (N) std::copy(local, local + N, carried);
            }
        }
    }
}

// States of SEGMENT tokens are alive at a time in the backward walk, recomputed from the ones kept every SEGMENT tokens.
constexpr int SEGMENT = 16;

template <int N>
static void backward(const ScanProblem& q, int64_t sequence, int64_t first, int64_t last, float* dB, float* dC,
                     Sums& sums) {
    const int64_t n = N ? N : q.n, tokens = q.rows * q.columns, vectors = last - first;
    const int64_t segments = (tokens + SEGMENT - 1) / SEGMENT, tile = vectors * n;
    std::vector<vf, Aligned<vf>> memory((3 + segments) * tile + 4 * SEGMENT * n + 4 * SEGMENT);
    vf *A = memory.data(), *gradients = A + tile, *dA = gradients + tile, *kept = dA + tile;
    vf *states = kept + segments * tile, *decays = states + SEGMENT * n, *dBs = decays + SEGMENT * n,
       *dCs = dBs + SEGMENT * n, *deltas = dCs + SEGMENT * n, *slopes = deltas + SEGMENT, *xs = slopes + SEGMENT;
    const int64_t b = sequence / q.p, p = sequence % q.p;
    const float* dy = q.dy + b * q.dy_strides[0] + p * q.dy_strides[1];
    float* dx = q.dx + b * q.dx_strides[0] + p * q.dx_strides[1];
    int64_t order[SEGMENT];
    for (int64_t k = 0; k < q.k; k++) {
        const Walk walk(q, sequence, k, first, last);
        float* ddelta = q.ddelta + b * q.ddelta_strides[0] + p * q.ddelta_strides[1] + k * q.ddelta_strides[2];
        walk.load_A(A);
        std::fill(gradients, gradients + 2 * tile, vf{});  // and dA
        std::fill(kept, kept + tile, vf{});
        for (int64_t segment = 0; segment + 1 < segments; segment++) {
            for (int u = 0; u < SEGMENT; u++) order[u] = token_at(q, q.codes[k], segment * SEGMENT + u);
            for (int64_t v = first; v < last; v++) {
                const vf* a = A + (v - first) * n;
                const vf bias = walk.parameter(q.bias, v);
                vf* state = kept + (segment + 1) * tile + (v - first) * n;
                std::copy(state - tile, state - tile + n, state);
                for (int u = 0; u < SEGMENT; u++) {
                    const vf delta = walk.step<false>(order[u], v, bias).delta;
                    const vf driven = delta * walk.tokens(walk.x, q.x_strides[2], order[u], v);
                    const float* B = walk.B_at(order[u]);
#pragma GCC unroll 16
                    for (int64_t s = 0; s < n; s++)
                        state[s] = exp2_lanes(delta, a[s]) * state[s] + driven * B[s];
                }
            }
        }
        for (int64_t segment = segments - 1; segment >= 0; segment--) {
            const int count = (int)std::min<int64_t>(SEGMENT, tokens - segment * SEGMENT);
            for (int u = 0; u < count; u++) order[u] = token_at(q, q.codes[k], segment * SEGMENT + u);
            std::fill(dBs, dBs + 2 * SEGMENT * n, vf{});  // and dCs
            for (int64_t v = first; v < last; v++) {
                const int lanes = walk.lanes(v);
                const vf *a = A + (v - first) * n, *before = kept + segment * tile + (v - first) * n;
                const vf bias = walk.parameter(q.bias, v), skip = walk.skip(v);
                for (int u = 0; u < count; u++) {
                    const Step step = walk.step<true>(order[u], v, bias);
                    deltas[u] = step.delta;
                    slopes[u] = step.slope;
                    xs[u] = walk.tokens(walk.x, q.x_strides[2], order[u], v);
                    const vf driven = step.delta * xs[u];
                    const float* B = walk.B_at(order[u]);
#pragma GCC unroll 16
                    for (int64_t s = 0; s < n; s++) {
                        decays[u * n + s] = exp2_lanes(step.delta, a[s]);
                        states[u * n + s] = decays[u * n + s] * (u ? states[u * n + s - n] : before[s]) + driven * B[s];
                    }
                }
                vf* gradient = gradients + (v - first) * n;
                vf* dA_sum = dA + (v - first) * n;
                vf dbias = vf{}, dD = vf{};
                for (int u = count - 1; u >= 0; u--) {
                    const int64_t token = order[u];
                    const vf out = walk.tokens(dy, q.dy_strides[2], token, v), driven = deltas[u] * xs[u];
                    const float *B = walk.B_at(token), *C = walk.C_at(token);
                    vf d_driven = vf{}, d_scaled = vf{};
#pragma GCC unroll 16
                    for (int64_t s = 0; s < n; s++) {
                        const vf g = gradient[s] + out * C[s];
                        const vf carried = decays[u * n + s] * (u ? states[u * n + s - n] : before[s]);
                        dCs[u * n + s] += out * states[u * n + s];
                        dBs[u * n + s] += g * driven;
                        d_driven += g * B[s];
                        const vf d_exponent = g * carried;
                        dA_sum[s] += d_exponent * deltas[u];
                        d_scaled += d_exponent * a[s];
                        gradient[s] = g * decays[u * n + s];
                    }
                    const vf d_delta = (d_driven * xs[u] + d_scaled * 0.6931471805599453f) * slopes[u];
                    store(ddelta + token * q.ddelta_strides[3] + v * LANES, d_delta, lanes);
                    float* place = dx + token * q.dx_strides[2] + v * LANES;
                    store(place, (k ? load(place, lanes) : skip * out) + d_driven * deltas[u], lanes);
                    dbias += d_delta;
                    dD += out * xs[u];
                }
                for (int i = 0; i < lanes; i++) {
                    sums.bias[k * q.d + v * LANES + i] += dbias[i];
                    if (k == 0) sums.D[v * LANES + i] += dD[i];
                }
            }
            for (int u = 0; u < count; u++)
                for (int64_t s = 0; s < n; s++) {
                    const int64_t place = ((sequence * q.k + k) * tokens + order[u]) * n + s;
                    dB[place] = sum(dBs[u * n + s]);
                    dC[place] = sum(dCs[u * n + s]);
                }
        }
        for (int64_t v = first; v < last; v++)
            for (int64_t s = 0; s < n; s++)
                for (int i = 0; i < walk.lanes(v); i++)
                    sums.A[(k * q.d + v * LANES + i) * n + s] += dA[(v - first) * n + s][i];
    }
}

static void forward_any(const ScanProblem& q, int64_t sequence, int64_t first, int64_t last) {
    if (q.n == 16) return forward<16>(q, sequence, first, last);
    if (q.n == 8) return forward<8>(q, sequence, first, last);
    forward<0>(q, sequence, first, last);
}

static void backward_any(const ScanProblem& q, int64_t sequence, int64_t first, int64_t last, float* dB, float* dC,
                         Sums& sums) {
    if (q.n == 16) return backward<16>(q, sequence, first, last, dB, dC, sums);
    if (q.n == 8) return backward<8>(q, sequence, first, last, dB, dC, sums);
    backward<0>(q, sequence, first, last, dB, dC, sums);
}

}  // namespace NAMESPACE
