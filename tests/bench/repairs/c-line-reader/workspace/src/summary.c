#include "summary.h"

#include <string.h>

#include "lines.h"
#include "record.h"

static int count(struct summary *summary, const char *host) {
    char name[HOST_SIZE];
    snprintf(name, sizeof name, "%s", host);
    int i = 0;
    while (i < summary->hosts && strcmp(summary->host[i].name, name) != 0) i++;
    if (i == MAX_HOSTS) return -1;
    if (i == summary->hosts) {
        strcpy(summary->host[i].name, name);
        summary->host[i].count = 0;
        summary->hosts++;
    }
    summary->host[i].count++;
    return 0;
}

int summarise(FILE *file, struct summary *summary) {
    struct lines lines;
    struct record record;
    char *line;
    memset(summary, 0, sizeof *summary);
    lines_open(&lines, file);
    while ((line = lines_next(&lines))) {
        summary->lines = lines.number;
        if (!record_parse(line, &record)) continue;
        summary->records++;
        if (strlen(record.message) > summary->longest) summary->longest = strlen(record.message);
        if (count(summary, record.host) < 0) return -1;
    }
    return 0;
}

unsigned long records_of(const struct summary *summary, const char *host) {
    for (int i = 0; i < summary->hosts; i++)
        if (strcmp(summary->host[i].name, host) == 0) return summary->host[i].count;
    return 0;
}
