#include "histogram.h"

void histogram_add(struct histogram *histogram, uint32_t sample, uint32_t times) {
    int class = 0;
    for (uint32_t limit = 10; class < CLASSES - 1 && sample >= limit; limit *= 10) class++;
    histogram->count[class] += times;
    histogram->total += times;
}

unsigned histogram_percent(const struct histogram *histogram, int class) {
    return histogram->total ? histogram->count[class] * 100 / histogram->total : 0;
}
