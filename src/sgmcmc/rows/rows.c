/* Minibatches of random rows: which rows they are, and copies of them. `sgmcmc.rows.gathering` has the same in NumPy and JAX.

   Random rows are far apart, so memory answers each one late. Announcing rows well before they are copied lets many
   answers be on their way at once. They are announced to the second-level cache: the first has room for fewer requests. */

#include <stdint.h>
#include <string.h>

#ifndef ROWS_AHEAD
#define ROWS_AHEAD 16
#endif
#ifndef LOCALITY
#define LOCALITY 2 /* of __builtin_prefetch: the second-level cache */
#endif

/* One function for each generation of processors, chosen when it is loaded: the numbers are the same. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum {
    CACHE_LINE = 64,
    MOST_ANNOUNCED = 4096, /* bytes of a row: the hardware follows longer ones by itself */
    AT_ONCE = 64,          /* random numbers */
};

static inline int64_t within(int32_t row, int64_t n_rows) {
    return row < 0 ? 0 : row < n_rows ? row : n_rows - 1;
}

static inline void announce(const char *row, int64_t bytes) {
    const int64_t announced = bytes < MOST_ANNOUNCED ? bytes : MOST_ANNOUNCED;
    for (int64_t k = 0; k < announced; k += CACHE_LINE) __builtin_prefetch(row + k, 0, LOCALITY);
    __builtin_prefetch(row + announced - 1, 0, LOCALITY);
}

static inline void copy(const char *source, int64_t n_rows, int64_t bytes, const int32_t *index, int64_t count, char *target) {
    for (int64_t i = 0; i < count; i++) {
        if (i + ROWS_AHEAD < count) announce(source + within(index[i + ROWS_AHEAD], n_rows) * bytes, bytes);
        memcpy(target + i * bytes, source + within(index[i], n_rows) * bytes, (size_t)bytes);
    }
}

/* target[i] = source[index[i]] for rows of so many bytes; a row number out of bounds means the nearest row. */
void copy_rows(const char *source, int64_t n_rows, int64_t bytes, const int32_t *index, int64_t count, char *target) {
    if (bytes == 4) { /* a constant makes memcpy one instruction */
        copy(source, n_rows, 4, index, count, target);
    } else if (bytes == 8) {
        copy(source, n_rows, 8, index, count, target);
    } else {
        copy(source, n_rows, bytes, index, count, target);
    }
}

/* Threefry-2x32 with 20 rounds, of (0, first), (0, first + 1), ...: the generator of JAX. */
typedef struct {
    uint32_t a, b;
} Key;

static inline __attribute__((always_inline)) void threefry(Key key, uint32_t first, int count, uint32_t *x, uint32_t *y) {
    const uint32_t keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
    static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    for (int i = 0; i < count; i++) {
        uint32_t u = keys[0], v = first + (uint32_t)i + keys[1];
        for (int group = 0; group < 5; group++) {
            for (int round = 0; round < 4; round++) {
                const int turn = turns[group % 2][round];
                u += v;
                v = u ^ (v << turn | v >> (32 - turn));
            }
            u += keys[(group + 1) % 3];
            v += keys[(group + 2) % 3] + (uint32_t)(group + 1);
        }
        x[i] = u;
        y[i] = v;
    }
}

static inline Key folded(Key key, uint32_t number) {
    Key made;
    threefry(key, number, 1, &made.a, &made.b);
    return made;
}

/* x % span, for x below 2^32 and span below 2^31, with `inverse` = floor(2^32 / span): at most one too small a quotient. */
static inline uint32_t remainder_of(uint32_t x, uint32_t span, uint32_t inverse) {
    const uint32_t left = x - (uint32_t)(((uint64_t)x * inverse) >> 32) * span;
    return left - (left >= span ? span : 0);
}

/* Numbers `first`, `first + 1`, ... of jax.random.randint(key, shape, 0, span), for span from 2: of 64 bits modulo span. The
   factor of the upper 32 is 2^32 modulo span, computed with 32 bits: 0 where span is more than 2^16. */
FOR_EACH_PROCESSOR
static void uniform_rows(Key upper, Key lower, uint32_t first, uint32_t span, int32_t *out) {
    uint32_t x[AT_ONCE], y[AT_ONCE];
    const uint32_t inverse = (uint32_t)(((uint64_t)1 << 32) / span), half = 65536u % span, factor = half * half % span;
    threefry(lower, first, AT_ONCE, x, y);
    for (int i = 0; i < AT_ONCE; i++) out[i] = (int32_t)remainder_of(x[i] ^ y[i], span, inverse);
    if (factor == 0) return;
    threefry(upper, first, AT_ONCE, x, y);
    for (int i = 0; i < AT_ONCE; i++) {
        const uint32_t sum = remainder_of(x[i] ^ y[i], span, inverse) * factor + (uint32_t)out[i];
        out[i] = (int32_t)remainder_of(sum, span, inverse);
    }
}

/* The first distinct numbers of a stream that comes in pieces. `seen` is a hash table of 2^bits entries (stream, number), with
   2^bits at least twice `wanted`. An entry of an earlier stream counts as empty, so nothing has to be cleared. */
typedef struct {
    int32_t *found;
    int64_t count, wanted;
    int32_t *seen;
    int32_t bits, own;
} Distinct;

static inline void add_distinct(Distinct *set, const int32_t *numbers, int64_t length) {
    const uint32_t last = ((uint32_t)1 << set->bits) - 1;
    int32_t *const seen = set->seen, *const found = set->found;
    const int32_t own = set->own;
    int64_t count = set->count;
    for (int64_t i = 0; i < length && count < set->wanted; i++) {
        uint32_t place = ((uint32_t)numbers[i] * 2654435769u) >> (32 - set->bits);
        while (seen[2 * place] == own && seen[2 * place + 1] != numbers[i]) place = (place + 1) & last;
        if (seen[2 * place] != own) {
            seen[2 * place] = own;
            seen[2 * place + 1] = numbers[i];
            found[count++] = numbers[i];
        }
    }
    set->count = count;
}

/* The first `wanted` distinct numbers of the stream of each random key (two numbers) go to its row of `found`; `poor` marks the
   keys whose streams have fewer. A stream is `length` numbers of 0 ... span - 1, by jax.random.randint from the key folded with
   `attempt`. `seen` may hold anything. */
void draw_distinct(const uint32_t *keys, int64_t n_keys, int64_t attempt, int64_t span, int64_t length, int64_t wanted,
                   int32_t *found, int32_t *seen, int32_t bits, uint8_t *poor) {
    int32_t numbers[AT_ONCE];
    memset(seen, 0, ((size_t)2 << bits) * sizeof *seen);
    for (int64_t s = 0; s < n_keys; s++) {
        const Key given = {keys[2 * s], keys[2 * s + 1]}, key = folded(given, (uint32_t)attempt);
        const Key upper = folded(key, 0), lower = folded(key, 1);
        Distinct set = {found + s * wanted, 0, wanted, seen, bits, (int32_t)(s + 1)};
        for (int64_t first = 0; first < length && set.count < wanted; first += AT_ONCE) {
            uniform_rows(upper, lower, (uint32_t)first, (uint32_t)span, numbers);
            add_distinct(&set, numbers, length - first < AT_ONCE ? length - first : AT_ONCE);
        }
        poor[s] = set.count < wanted;
    }
}
