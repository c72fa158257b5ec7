#ifndef SERIES_H
#define SERIES_H
#include <stdint.h>

/* What is kept of many samples without keeping them. */
struct series {
    uint32_t count;
    uint32_t sum;
    uint32_t least;
    uint32_t most;
};

void series_clear(struct series *series);
void series_add(struct series *series, uint32_t sample);
void series_join(struct series *series, const struct series *other);
uint32_t series_mean(const struct series *series); /* rounded, 0 where there is no sample */

#endif
