#include "check.h"
#include "histogram.h"
#include "series.h"
#include "stats.h"

static struct series of(uint32_t sample, uint32_t times) {
    struct series series;
    series_clear(&series);
    for (uint32_t i = 0; i < times; i++) series_add(&series, sample);
    return series;
}

int main(void) {
    begin();
    struct series day = of(60000, 90000), other = of(4000000000u, 3), whole;
    CHECK(series_mean(&day) == 60000);
    CHECK(series_mean(&other) == 4000000000u);
    CHECK(day.count == 90000 && day.least == 60000 && day.most == 60000);

    series_clear(&whole);
    series_join(&whole, &day);
    series_join(&whole, &other);
    CHECK(series_mean(&whole) == 193327); /* 17,400,000,000 / 90,003 = 193,326.89 */
    CHECK(whole.count == 90003);

    struct series most = of(UINT32_MAX, 5);
    CHECK(series_mean(&most) == UINT32_MAX);

    uint32_t high[] = {4000000000u, 4200000000u}, equal[] = {UINT32_MAX, UINT32_MAX};
    CHECK(median(high, 2) == 4100000000u);
    CHECK(median(equal, 2) == UINT32_MAX);
    CHECK(median(high, 0) == 0);

    struct histogram histogram = {{0}, 0};
    histogram_add(&histogram, 50, 50000000);
    histogram_add(&histogram, 5000, 150000000);
    CHECK(histogram_percent(&histogram, 1) == 25);
    CHECK(histogram_percent(&histogram, 3) == 75);
    CHECK(histogram_percent(&histogram, 0) == 0);

    struct histogram full = {{0}, 0};
    histogram_add(&full, UINT32_MAX, UINT32_MAX);
    CHECK(histogram_percent(&full, 4) == 100);

    struct series few = of(2, 3);
    series_add(&few, 3);
    CHECK(series_mean(&few) == 2);
    return finish();
}
