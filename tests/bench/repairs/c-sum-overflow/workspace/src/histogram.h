#ifndef HISTOGRAM_H
#define HISTOGRAM_H
#include <stdint.h>

#define CLASSES 5 /* under 10, 100, 1000, 10000 ms, and the rest */

struct histogram {
    uint32_t count[CLASSES];
    uint32_t total;
};

void histogram_add(struct histogram *histogram, uint32_t sample, uint32_t times);
unsigned histogram_percent(const struct histogram *histogram, int class); /* rounded down */

#endif
