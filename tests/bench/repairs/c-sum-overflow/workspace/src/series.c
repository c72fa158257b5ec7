#include "series.h"

void series_clear(struct series *series) {
    series->count = 0;
    series->sum = 0;
    series->least = UINT32_MAX;
    series->most = 0;
}

void series_add(struct series *series, uint32_t sample) {
    series->count++;
    series->sum += sample;
    if (sample < series->least) series->least = sample;
    if (sample > series->most) series->most = sample;
}

void series_join(struct series *series, const struct series *other) {
    series->count += other->count;
    series->sum += other->sum;
    if (other->least < series->least) series->least = other->least;
    if (other->most > series->most) series->most = other->most;
}

uint32_t series_mean(const struct series *series) {
    if (series->count == 0) return 0;
    return (uint32_t)((series->sum + series->count / 2) / series->count);
}
