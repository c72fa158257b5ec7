/* What a hidden test in C is made of: begin(); CHECK(…), CHECK_TEXT(…); return finish(); */
#include <stdio.h>
#include <string.h>

static char check_word[64];
static int check_passed, check_total;

static void begin(void) {
  if (!fgets(check_word, sizeof check_word, stdin)) check_word[0] = 0;
  check_word[strcspn(check_word, "\n")] = 0;
}

static void check_one(int holds, const char *what, int line) {
  check_total++;
  if (holds) check_passed++;
  else printf("line %d: %s\n", line, what);
}

#define CHECK(condition) check_one(!!(condition), #condition, __LINE__)
#define CHECK_TEXT(got, wanted) check_text((got), (wanted), __LINE__)

static void check_text(const char *got, const char *wanted, int line) {
  int equal = got && strcmp(got, wanted) == 0;
  if (!equal) printf("got \"%s\", wanted \"%s\"\n", got ? got : "(null)", wanted);
  check_one(equal, "texts are equal", line);
}

static int finish(void) {
  printf("\n%s %d %d\n", check_word, check_passed, check_total);
  return 0;
}
