/*
 * Converts rows. Sums use eight lanes, which compilers turn into vectors.
 */
#include "tuner/judge/rows.h"

#include <pthread.h>
#include <stdbool.h>
#include "tuner/judge/number.h"

/* The most memory of all parts together. */
#define PARTS_BYTES ((size_t)1 << 30)

void fa2i_host_row(const fa2i_host_tensor *tensor, fa2_dtype dtype, int64_t offset, int head_dim, float *out)
{
    const int64_t period = tensor->period_elems;
    for (int64_t left = head_dim; left > 0;) {
        const int64_t at = period > 0 ? offset % period : offset;
        const int64_t count = period > 0 && period - at < left ? period - at : left;
        fa2i_get_numbers(dtype, tensor->data, (size_t)at, (size_t)count, out);
        offset += count;
        out += count;
        left -= count;
    }
}

int64_t fa2i_host_repeats(const fa2i_host_tensor *tensor, int64_t rows)
{
    int64_t a = tensor->period_elems, b = tensor->stride_seq;
    while (b != 0) { /* a becomes their greatest common divisor */
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    const int64_t distance = a > 0 ? tensor->period_elems / a : 0;
    return distance > 0 ? (rows + distance - 1) / distance : 1;
}

void fa2i_host_head(const fa2i_host_tensor *tensor, fa2_dtype dtype, int batch, int head, int32_t first, int32_t count,
                    int head_dim, float *out, int64_t *at)
{
    const int64_t base = batch * tensor->stride_batch + head * tensor->stride_head + first * tensor->stride_seq;
    if (base == *at)
        return;
    *at = base;
    for (int32_t i = 0; i < count; i++)
        fa2i_host_row(tensor, dtype, base + i * tensor->stride_seq, head_dim, out + (int64_t)i * head_dim);
}

double fa2i_dot(const float *a, const float *b, int count)
{
    double sums[8] = {0};
    for (int i = 0; i < count; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += (double)a[i + lane] * b[i + lane];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

float fa2i_plain_dot(const float *a, const float *b, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

size_t fa2i_count_parts(int threads, size_t row_count, size_t part_bytes)
{
    const size_t most = PARTS_BYTES / part_bytes;
    size_t count = threads > 1 ? (size_t)threads : 1;
    count = count > FA2I_PARTS_MAX ? FA2I_PARTS_MAX : count;
    count = count > row_count ? row_count : count;
    count = count > most ? most : count;
    return count > 0 ? count : 1;
}

void fa2i_run_parts(void *(*run)(void *), void *parts, size_t part_bytes, size_t count)
{
    pthread_t threads[FA2I_PARTS_MAX];
    bool started[FA2I_PARTS_MAX] = {false};
    char *part = parts;
    for (size_t i = 1; i < count; i++)
        started[i] = pthread_create(&threads[i], NULL, run, part + i * part_bytes) == 0;
    run(part);
    for (size_t i = 1; i < count; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        else
            run(part + i * part_bytes);
    }
}
