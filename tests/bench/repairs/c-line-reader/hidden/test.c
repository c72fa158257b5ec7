#include "check.h"
#include "summary.h"

#include <stdlib.h>

static struct summary s;

static void read_text(const char *text) {
    FILE *file = tmpfile();
    fputs(text, file);
    rewind(file);
    summarise(file, &s);
    fclose(file);
}

/* Two records, the first with a message of `length` characters. */
static int splits(size_t length, const char *end) {
    char *text = malloc(length + 64);
    strcpy(text, "alpha ");
    memset(text + 6, 'x', length);
    strcpy(text + 6 + length, end);
    strcat(text, "beta y");
    strcat(text, end);
    read_text(text);
    free(text);
    return !(s.records == 2 && s.lines == 2 && s.hosts == 2 && s.longest == (length ? length : 1) &&
             records_of(&s, "alpha") == 1 && records_of(&s, "beta") == 1);
}

int main(void) {
    begin();
    int wrong = 0, wrong_windows = 0;
    for (size_t length = 1; length < 700; length++) {
        wrong += splits(length, "\n");
        wrong_windows += splits(length, "\r\n");
    }
    CHECK(wrong == 0);
    CHECK(wrong_windows == 0);
    CHECK(!splits(20, "\n"));
    CHECK(!splits(57, "\n"));
    CHECK(!splits(58, "\n"));
    CHECK(!splits(200000, "\n"));

    read_text("alpha started");
    CHECK(s.records == 1 && s.lines == 1);
    CHECK(s.longest == 7);

    read_text("");
    CHECK(s.records == 0 && s.lines == 0);

    read_text("\n\n# nothing\n\n");
    CHECK(s.records == 0 && s.lines == 4);

    read_text("a c\r\nd\n");
    CHECK(s.records == 2);
    CHECK(records_of(&s, "a") == 1);
    CHECK(records_of(&s, "d") == 1);

    read_text("# a comment that is longer than any buffer would be, with a host behind: xxxxxxxxxxxxxxxxxxxxxx alpha y\n");
    CHECK(s.records == 0);
    CHECK(s.lines == 1);

    read_text("a-name-that-is-longer-than-the-table-has-room-for x\na-name-that-is-longer-than-the-table-has y\n");
    CHECK(s.records == 2);
    CHECK(s.hosts == 1);
    return finish();
}
