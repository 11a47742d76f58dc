/* bounds: which events of a region are held, where its writer stores between the loads of a reader. The loads are those of a list. */
#include "check.h"
#include "region.h"

#include <stdatomic.h>

static const uint64_t *ends, *firsts; /* those that are loaded one after the other; 0 ends a list, and its last one stays */

static uint64_t next_in(const uint64_t **list) {
  uint64_t value = **list;
  if ((*list)[1]) ++*list;
  return value;
}

static uint64_t load(const volatile void *place, const uint8_t *region) {
  size_t offset = (size_t)((const volatile uint8_t *)place - region);
  return next_in(offset == offsetof(struct sdm_map_header, end) ? &ends : &firsts);
}

static struct sdm_map_header header;

#undef atomic_load_explicit
#define atomic_load_explicit(place, order) ((void)(order), load(place, (const uint8_t *)&header))
#include "region.c"

static enum found found(const uint64_t *some_ends, const uint64_t *some_firsts, uint64_t expected_end) {
  struct region r = {.bytes = (const uint8_t *)&header, .slots = 16};
  uint64_t first = 0, end = 0;
  ends = some_ends;
  firsts = some_firsts;
  enum found result = find(&r, 105, &first, &end);
  if (result != FOUND_DAMAGE && result != FOUND_AGAIN) EQUAL(end, expected_end);
  return result;
}

#define LIST(...) (const uint64_t[]){__VA_ARGS__, 0}

int main(void) {
  /* The first position has passed the end, or is too far before it, and stays; the other one is old. */
  EQUAL(found(LIST(105, 120), LIST(110), 120), FOUND_OVERTAKEN);
  EQUAL(found(LIST(120), LIST(100, 104), 120), FOUND_EVENTS);
  EQUAL(found(LIST(104, 106), LIST(100), 106), FOUND_EVENTS);
  EQUAL(found(LIST(105), LIST(110), 0), FOUND_DAMAGE);
  EQUAL(found(LIST(120), LIST(100), 0), FOUND_DAMAGE);
  EQUAL(found(LIST(104), LIST(100), 0), FOUND_DAMAGE);
  /* A writer that never rests does not keep the reader: it can be stopped between two looks. */
  uint64_t changing[101] = {0};
  for (int i = 0; i < 100; i++) changing[i] = 110 + (uint64_t)i;
  EQUAL(found(LIST(105), changing, 0), FOUND_AGAIN);
  return 0;
}
