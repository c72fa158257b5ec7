#include <inttypes.h>
#include <stdio.h>

#include "histogram.h"
#include "series.h"

int main(void) {
    struct series series;
    struct histogram histogram = {{0}, 0};
    uint32_t sample;
    series_clear(&series);
    while (scanf("%" SCNu32, &sample) == 1) {
        series_add(&series, sample);
        histogram_add(&histogram, sample, 1);
    }
    printf("mean %" PRIu32 " ms of %" PRIu32 "\n", series_mean(&series), series.count);
    for (int i = 0; i < CLASSES; i++) printf("%3u%%\n", histogram_percent(&histogram, i));
    return 0;
}
