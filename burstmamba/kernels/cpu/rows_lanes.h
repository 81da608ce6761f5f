// What happens to tokens between products, and bilinear sampling, for one width of vectors.
namespace NAMESPACE {

// v / (1 + exp(-v)); the exponential of -|v| cannot overflow.
static inline vf silu(vf v) {
    const vf q = exp2_lanes((vf)((vi)v | (int)0x80000000), splat(1.4426950408889634f));
    return v * (v < 0.0f ? q : splat(1.0f)) / (q + 1.0f);
}

static void rows(const RowsProblem& q, int64_t first, int64_t last) {
    const int64_t vectors = (q.c + LANES - 1) / LANES;
    std::vector<vf, Aligned<vf>> memory(vectors);
    vf* row = memory.data();
    for (int64_t r = first; r < last; r++) {
        const float* gates = q.gates ? q.gates + r / q.rows_per_image * q.c : nullptr;
        vf total = vf{};
        for (int64_t v = 0; v < vectors; v++) {
            const int64_t place = v * LANES;
            const int lanes = (int)std::min<int64_t>(LANES, q.c - place);
            vf x = load(q.x + r * q.x_stride + place, lanes);
            if (q.update) {
                vf update = load(q.update + r * q.update_stride + place, lanes);
                if (gates) update *= load(gates + place, lanes);
                x = x * load(q.skip + place, lanes) + update;
            }
            if (q.sum) store(q.sum + r * q.c + place, x, lanes);
            total += x;
            row[v] = x;
        }
        if (!q.normal) continue;
        const float mean = sum(total) / (float)q.c;
        vf squares = vf{};
        for (int64_t v = 0; v < vectors; v++) {
            row[v] -= mean;
            const int lanes = (int)std::min<int64_t>(LANES, q.c - v * LANES);
            for (int i = lanes; i < LANES; i++) row[v][i] = 0.0f;  // there is no channel
            squares += row[v] * row[v];
        }
        const float scale = 1.0f / std::sqrt(sum(squares) / (float)q.c + q.epsilon);
        for (int64_t v = 0; v < vectors; v++) {
            const int64_t place = v * LANES;
            const int lanes = (int)std::min<int64_t>(LANES, q.c - place);
            vf normal = row[v] * scale * load(q.weight + place, lanes) + load(q.bias + place, lanes);
            if (q.gate) normal *= silu(load(q.gate + r * q.gate_stride + place, lanes));
            store(q.normal + r * q.c + place, normal, lanes);
        }
    }
}

// A coordinate inside the image, the pixel before it and its distance from that; what is no number counts as 0.
struct Place {
    int64_t before, after;
    float distance;
    Place(float at, int64_t size) {
        at = at > 0.0f ? std::min(at, (float)(size - 1)) : 0.0f;
        before = (int64_t)at;
        after = std::min(before + 1, size - 1);
        distance = at - (float)before;
    }
};

static void sample(const SampleProblem& q, int64_t image, int64_t row) {
    const float* features = q.features + image * q.features_strides[0];
    const float* place = q.place + image * q.place_strides[0] + row * q.place_strides[2];
    float* out = q.out + (image * q.rows + row) * q.columns * q.c;
    for (int64_t column = 0; column < q.columns; column++, out += q.c) {
        const float* at = place + column * q.place_strides[3];
        const Place x((float)column + at[0], q.w), y((float)row + at[q.place_strides[1]], q.h);
        const float *above = features + y.before * q.features_strides[1], *below = features + y.after * q.features_strides[1];
        const int64_t left = x.before * q.features_strides[2], right = x.after * q.features_strides[2];
        for (int64_t c = 0; c < q.c; c += LANES) {
            const int lanes = (int)std::min<int64_t>(LANES, q.c - c);
            const vf a = load(above + left + c, lanes), b = load(above + right + c, lanes);
            const vf d = load(below + left + c, lanes), e = load(below + right + c, lanes);
            const vf upper = a + (b - a) * x.distance, lower = d + (e - d) * x.distance;
            store(out + c, upper + (lower - upper) * y.distance, lanes);
        }
    }
}

}  // namespace NAMESPACE
