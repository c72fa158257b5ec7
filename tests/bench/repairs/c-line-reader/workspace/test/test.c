#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "summary.h"

int main(void) {
    struct summary s;
    FILE *file = tmpfile();
    fputs("# day one\nalpha started\nbeta started\n\nalpha stopped\ngamma\n", file);
    rewind(file);
    assert(summarise(file, &s) == 0);
    assert(s.records == 4 && s.hosts == 3 && s.lines == 6);
    assert(records_of(&s, "alpha") == 2 && records_of(&s, "gamma") == 1 && records_of(&s, "x") == 0);
    assert(s.longest == strlen("started"));
    puts("ok");
    return 0;
}
