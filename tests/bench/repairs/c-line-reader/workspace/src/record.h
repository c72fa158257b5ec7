#ifndef RECORD_H
#define RECORD_H

struct record {
    const char *host;
    const char *message;
};

/* Take a line apart, in place; 0 where it is no record. */
int record_parse(char *line, struct record *record);

#endif
