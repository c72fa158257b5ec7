#include "stats.h"

static uint32_t middle(uint32_t low, uint32_t high) {
    return (low + high) / 2;
}

uint32_t median(const uint32_t *sorted, size_t count) {
    if (count == 0) return 0;
    if (count % 2) return sorted[count / 2];
    return middle(sorted[count / 2 - 1], sorted[count / 2]);
}

size_t place_of(const uint32_t *sorted, size_t count, uint32_t sample) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t half = low + (high - low) / 2;
        if (sorted[half] < sample) low = half + 1;
        else high = half;
    }
    return low;
}
