/* Minibatches of random rows: which rows they are, and copies of them. `sgmcmc.gathering` has the same in NumPy.

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

enum {
    CACHE_LINE = 64,
    MOST_ANNOUNCED = 4096, /* bytes of a row: the hardware follows longer ones by itself */
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

/* The first `wanted` distinct numbers of each stream go to its row of `found`; `poor` marks the streams that have fewer.

   `seen` is a hash table of 2^bits entries (stream, number), all zero at first, with 2^bits at least twice `wanted`. An entry
   of an earlier stream counts as empty, so nothing has to be cleared. */
void first_distinct(const int32_t *streams, int64_t n_streams, int64_t length, int64_t wanted, int32_t *found, int32_t *seen,
                    int32_t bits, uint8_t *poor) {
    const uint32_t last = ((uint32_t)1 << bits) - 1;
    for (int64_t s = 0; s < n_streams; s++) {
        const int32_t *stream = streams + s * length;
        const int32_t own = (int32_t)(s + 1);
        int64_t count = 0;
        for (int64_t i = 0; i < length && count < wanted; i++) {
            uint32_t place = ((uint32_t)stream[i] * 2654435769u) >> (32 - bits);
            while (seen[2 * place] == own && seen[2 * place + 1] != stream[i]) place = (place + 1) & last;
            if (seen[2 * place] != own) {
                seen[2 * place] = own;
                seen[2 * place + 1] = stream[i];
                found[s * wanted + count++] = stream[i];
            }
        }
        poor[s] = count < wanted;
    }
}
