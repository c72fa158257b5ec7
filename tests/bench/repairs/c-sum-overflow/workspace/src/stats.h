#ifndef STATS_H
#define STATS_H
#include <stddef.h>
#include <stdint.h>

/* The median of sorted samples; of an even number the middle of the two in the middle, rounded down. */
uint32_t median(const uint32_t *sorted, size_t count);

/* Where the sample stands, or would have to stand, in sorted samples. */
size_t place_of(const uint32_t *sorted, size_t count, uint32_t sample);

#endif
