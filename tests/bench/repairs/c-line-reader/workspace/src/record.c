#include "record.h"

#include <string.h>

int record_parse(char *line, struct record *record) {
    if (*line == 0 || *line == '#') return 0;
    char *blank = strchr(line, ' ');
    record->host = line;
    if (blank) {
        *blank = 0;
        record->message = blank + 1;
    } else {
        record->message = "";
    }
    return 1;
}
