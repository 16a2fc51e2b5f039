/* The speed limit: stochastic gradient Langevin dynamics for logistic regression, written by hand for one core.

   Laplace prior, intercept, every draw kept. Rows come uniformly with replacement (`random`), or as a contiguous window at a
   uniform start (`window`). For each number of rows one line is printed, such as

       mode=random rows=571012 columns=54 minibatch=500 iterations=10000 us_per_iteration=22.114 last_bias=0.03451

   Build: cc -O3 -march=native -ffast-math limit.c -o limit -lm
   Run:   limit random|window ITERATIONS MINIBATCH COLUMNS ROWS [ROWS ...] */

#define _DEFAULT_SOURCE /* madvise */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    CACHE_LINE = 64,     /* bytes */
    HUGE_PAGE = 1 << 21, /* bytes */
    LINE_FLOATS = CACHE_LINE / (int)sizeof(float),
    ROW_MULTIPLE = 8,     /* rows are padded with zeros to this: vector loops without a remainder */
    COVERTYPE_WIDTH = 56, /* 54 columns, padded */
    LARGEST_WIDTH = 4096,
    ROWS_AHEAD = 8, /* far enough for memory to answer in time, near enough for the first-level cache to keep the row */
};

static const float STEPSIZE_TIMES_ROWS = 5e-6f * 571012; /* equally stable dynamics whatever the number of rows */
static const float FEATURE_RANGE = 0.25f;                /* keeps this step size from overshooting */

typedef struct {
    int64_t rows;
    int columns;
    int width; /* floats from one row to the next */
    float *features;
    float *labels;
} Data;

typedef struct {
    int contiguous;
    int iterations;
    int minibatch;
} Job;

/* SplitMix64. Its state only counts, so the compiler can make several numbers at once. */
ALWAYS_INLINE uint64_t random_bits(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* In [0, 1). */
ALWAYS_INLINE float random_uniform(uint64_t *state) {
    return (float)(random_bits(state) >> 40) * 0x1p-24f;
}

/* In 0 ... bound - 1: a multiplication where a remainder would take a division. */
ALWAYS_INLINE int64_t random_row(uint64_t *state, int64_t bound) {
    return (int64_t)(((random_bits(state) >> 32) * (uint64_t)bound) >> 32);
}

/* Box-Muller, in pairs; `count` is even. */
ALWAYS_INLINE void random_normals(uint64_t *state, float *out, int count) {
    const int half = count / 2;
    for (int k = 0; k < half; k++) {
        const float radius = sqrtf(-2.0f * logf(1.0f - random_uniform(state)));
        const float angle = 6.2831853f * random_uniform(state);
        out[k] = radius * cosf(angle);
        out[half + k] = radius * sinf(angle);
    }
}

ALWAYS_INLINE float sign(float x) {
    return (float)((x > 0.0f) - (x < 0.0f));
}

ALWAYS_INLINE void choose_rows(uint64_t *state, const Data *data, int minibatch, int contiguous, int64_t *chosen) {
    if (contiguous) {
        const int64_t start = random_row(state, data->rows - minibatch + 1);
        for (int i = 0; i < minibatch; i++) chosen[i] = start + i;
    } else {
        for (int i = 0; i < minibatch; i++) chosen[i] = random_row(state, data->rows);
    }
}

/* The hardware follows a contiguous window by itself; random rows must be announced. */
ALWAYS_INLINE void announce_row(const Data *data, int64_t row, int width) {
    for (int j = 0; j < width; j += LINE_FLOATS) __builtin_prefetch(data->features + row * width + j);
    __builtin_prefetch(data->labels + row);
}

/* Gradient of the log likelihood summed over the chosen rows; returns the intercept's part. */
ALWAYS_INLINE float likelihood_gradient(const Data *data, const int64_t *chosen, int minibatch, int contiguous, int width,
                                        const float *beta, float bias, float *gradient) {
    float bias_gradient = 0.0f;
    memset(gradient, 0, (size_t)width * sizeof *gradient);
    for (int i = 0; i < minibatch; i++) {
        if (!contiguous && i + ROWS_AHEAD < minibatch) announce_row(data, chosen[i + ROWS_AHEAD], width);
        const float *x = data->features + chosen[i] * width;
        float z = bias;
        for (int j = 0; j < width; j++) z += x[j] * beta[j];
        const float residual = data->labels[chosen[i]] - 1.0f / (1.0f + expf(-z));
        bias_gradient += residual;
        for (int j = 0; j < width; j++) gradient[j] += residual * x[j];
    }
    return bias_gradient;
}

/* The chain. `width` and `contiguous` are arguments of their own so that each caller below compiles with them as constants:
   the loops over columns are then unrolled and the gradient stays in registers. */
ALWAYS_INLINE void sample(const Data *data, const Job *job, int width, int contiguous, float *draws) {
    const float stepsize = STEPSIZE_TIMES_ROWS / (float)data->rows;
    const float drift = 0.5f * stepsize, diffusion = sqrtf(stepsize), scale = (float)data->rows / (float)job->minibatch;
    float beta[width], gradient[width], noise[width + 2], bias = 0.0f;
    int64_t *chosen = malloc((size_t)job->minibatch * sizeof *chosen);
    uint64_t state = 1;
    memset(beta, 0, sizeof beta);
    for (int t = 0; t < job->iterations; t++) {
        choose_rows(&state, data, job->minibatch, contiguous, chosen);
        const float bias_gradient =
            likelihood_gradient(data, chosen, job->minibatch, contiguous, width, beta, bias, gradient);
        random_normals(&state, noise, width + 2);
        for (int j = 0; j < data->columns; j++) {
            beta[j] += drift * (scale * gradient[j] - sign(beta[j])) + diffusion * noise[j];
        }
        bias += drift * (scale * bias_gradient - sign(bias)) + diffusion * noise[width];
        memcpy(draws, beta, (size_t)data->columns * sizeof *draws);
        draws[data->columns] = bias;
        draws += data->columns + 1;
    }
    free(chosen);
}

static void sample_random(const Data *data, const Job *job, float *draws) {
    if (data->width == COVERTYPE_WIDTH) {
        sample(data, job, COVERTYPE_WIDTH, 0, draws);
    } else {
        sample(data, job, data->width, 0, draws);
    }
}

static void sample_window(const Data *data, const Job *job, float *draws) {
    if (data->width == COVERTYPE_WIDTH) {
        sample(data, job, COVERTYPE_WIDTH, 1, draws);
    } else {
        sample(data, job, data->width, 1, draws);
    }
}

/* In huge pages, as NumPy asks for too: with small ones every random row of ten million misses the page table's cache, and
   the limit would not be one. */
static float *allocate_floats(size_t count) {
    const size_t bytes = (count * sizeof(float) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    float *memory = aligned_alloc(HUGE_PAGE, bytes);
    if (memory == NULL) {
        fprintf(stderr, "limit: no memory for %zu bytes\n", bytes);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

static Data make_data(int64_t rows, int columns) {
    const int width = (columns + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
    Data data = {rows, columns, width, allocate_floats((size_t)rows * (size_t)width), allocate_floats((size_t)rows)};
    uint64_t state = 2;
    for (int64_t i = 0; i < rows; i++) {
        float *x = data.features + i * width;
        for (int j = 0; j < columns; j++) x[j] = FEATURE_RANGE * random_uniform(&state);
        for (int j = columns; j < width; j++) x[j] = 0.0f;
        data.labels[i] = (float)(random_bits(&state) & 1);
    }
    return data;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void measure(const Job *job, int64_t rows, int columns) {
    Data data = make_data(rows, columns);
    const size_t kept = (size_t)job->iterations * (size_t)(columns + 1);
    float *draws = allocate_floats(kept);
    const double start = seconds_now();
    if (job->contiguous) {
        sample_window(&data, job, draws);
    } else {
        sample_random(&data, job, draws);
    }
    const double microseconds = 1e6 * (seconds_now() - start) / job->iterations;
    /* The last draw is printed so that nothing can be optimised away. */
    printf("mode=%s rows=%lld columns=%d minibatch=%d iterations=%d us_per_iteration=%.3f last_bias=%.5f\n",
           job->contiguous ? "window" : "random", (long long)rows, columns, job->minibatch, job->iterations, microseconds,
           draws[kept - 1]);
    fflush(stdout);
    free(draws);
    free(data.labels);
    free(data.features);
}

static int refuse(const char *reason) {
    fprintf(stderr, "limit: %s\nusage: limit random|window ITERATIONS MINIBATCH COLUMNS ROWS [ROWS ...]\n", reason);
    return 2;
}

int main(int count, char **argument) {
    if (count < 6) return refuse("too few arguments");
    const int contiguous = strcmp(argument[1], "window") == 0;
    if (!contiguous && strcmp(argument[1], "random") != 0) return refuse("the mode is neither random nor window");
    const Job job = {contiguous, atoi(argument[2]), atoi(argument[3])};
    const int columns = atoi(argument[4]);
    if (job.iterations < 1 || job.minibatch < 1) return refuse("iterations and minibatch must be positive");
    if (columns < 1 || columns > LARGEST_WIDTH) return refuse("columns must be from 1 to 4096");
    for (int k = 5; k < count; k++) {
        const long long rows = atoll(argument[k]);
        if (rows < job.minibatch || rows >> 32) return refuse("rows must be from the minibatch's to 2^32 - 1");
        measure(&job, rows, columns);
    }
    return 0;
}
