#include <assert.h>
#include <stdio.h>

#include "histogram.h"
#include "series.h"
#include "stats.h"

int main(void) {
    struct series series;
    struct histogram histogram = {{0}, 0};
    uint32_t sorted[] = {3, 5, 8, 13};
    series_clear(&series);
    assert(series_mean(&series) == 0);
    for (uint32_t n = 1; n <= 4; n++) series_add(&series, n);
    assert(series_mean(&series) == 3 && series.least == 1 && series.most == 4);
    assert(median(sorted, 4) == 6 && median(sorted, 3) == 5 && place_of(sorted, 4, 6) == 2);
    histogram_add(&histogram, 5, 1);
    histogram_add(&histogram, 10, 3);
    assert(histogram_percent(&histogram, 0) == 25 && histogram_percent(&histogram, 1) == 75);
    puts("ok");
    return 0;
}
