#include <stdio.h>

#include "json.h"

int main(int argc, char **argv) {
    struct text text;
    struct note note = {argc > 1 ? argv[1] : "untitled", argc > 2 ? argv[2] : ""};
    text_new(&text);
    append_notes(&text, &note, 1);
    puts(text.bytes);
    text_free(&text);
    return 0;
}
